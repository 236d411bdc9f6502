// Validation: what a call with illegal arguments must come to. The arguments are a legal call with
// edits; the ruling on them is the reference's predicate, never the name of the edit.
#include <algorithm>

#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

EditGroups possible_edits(const Spec& spec) { return derived_edits(extents_of(spec)); }

/// Validation looks at arguments, not at elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    spec.set("heads", std::min<std::int64_t>(spec.number("heads"), 3));
    spec.set("dim", std::min<std::int64_t>(spec.number("dim"), 48));
    if (spec.lists[0].size() > 4) spec.lists[0].resize(4);
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 200);
    if (std::count(spec.lists[0].begin(), spec.lists[0].end(), 0) == std::ssize(spec.lists[0]))
        spec.lists[0].back() = 1;
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
}

}  // namespace

void add_compress_validation(std::vector<Property>& list, bool) {
    add_validation_properties(list, plain_data, possible_edits);
}

}  // namespace attncheck::properties
