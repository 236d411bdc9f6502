// Arguments of the neutral operators that have no effect: windows beyond every key, and the corner of a
// diagonal that nobody needs.
#include <numeric>

#include "properties/laws/unusual_arguments.h"
#include "properties/operators/attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int total_of(const std::vector<Int>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), Int{0});
}

}  // namespace

/// Query i sees j with i + off - left <= j <= i + off + right, where |off| is at most the longer of both
/// lengths: a window as long as both together hides nothing.
std::vector<Edit> effectless_neutral_edits(const Spec& spec) {
    std::vector<Edit> out;
    const Int reach = total_of(spec.lists[0]) + total_of(spec.lists[1]);
    bool hides = false;
    for (const char* window : {"window_left", "window_right"}) {
        const Int value = spec.number(window);
        if (value < 0 || value >= reach)
            add_unlimited_windows(window, reach, out);
        else
            hides = true;
    }
    if (!hides || spec.lists[0] == spec.lists[1])
        for (const char* corner : {"align=0", "align=1"}) out.emplace_back(corner);
    return out;
}

}  // namespace attncheck::properties
