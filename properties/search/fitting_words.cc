#include "properties/search/fitting_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace attncheck::properties {
namespace {

constexpr std::string_view kFitsMuch = "acc=half";

/// Those that widen few bounds come first. Sums in half fit nearly everything, and are named where nothing else fits.
constexpr std::string_view kWords[] = {
    "order=any",   "tile=1",      "stats=lse",   "split=lse",  "split=half", "tanh=16",    "exp=34",
    "sum=rounded", "p=half ds=half", "p=kept", "forward=own", "delta=half", "group=half", "scale=fp32",
    "in=bf16x3",   "in=tf32",     "in=tf32-truncating", "scores=half", "steps=half", "scale=half",
    "tanh=8192",   "steps=half forward=own", "steps=half group=half forward=own", "hidden=times_zero",
    "ftz=all",     // the allowance for what is near zero is larger than many a small error
    kFitsMuch};
constexpr std::size_t kMost = 3;

/// Words of what only a gradient does.
bool is_of_gradients(std::string_view words) {
    return words.find("forward=") != words.npos || words.starts_with("delta=") || words == "p=kept" || words.starts_with("group=");
}

/// Words of what compression does, which has neither softmax nor logits.
bool is_of_compression(std::string_view words) {
    return words == "order=any" || words.starts_with("in=") || words == "ftz=all" || words == "acc=half";
}

}  // namespace

std::string fitting_words(const ref::RoundingClass& declared, const WordsOf& of,
                          const std::function<bool(const ref::RoundingClass&)>& holds,
                          const std::function<bool()>& is_over) {
    std::vector<std::string> fitting;
    for (const std::string_view words : kWords) {
        if (fitting.size() == kMost || is_over()) break;
        if (words.starts_with("tanh") && !of.caps) continue;
        if (is_of_gradients(words) && !of.gradient) continue;
        if (!is_of_compression(words) && !of.softmax) continue;
        if (words == kFitsMuch && !fitting.empty()) continue;
        ref::RoundingClass with = ref::parse_rounding_class(words);
        if (!words.starts_with("p=") && !declared.prob_rounded) with.prob_rounded = false;
        if (words != "p=half ds=half" && !declared.score_grad_rounded) with.score_grad_rounded = false;
        if (words != "order=any") with.any_order = declared.any_order;
        with = ref::weaker(declared, with);
        if (with != declared && holds(with))
            fitting.push_back(words.find(' ') == words.npos ? std::string(words) : fmt::format("'{}'", words));
    }
    if (fitting.empty()) return {};
    return fmt::format("holds with --precision {}{}", fmt::join(fitting, " or "),
                       fitting.front() == kFitsMuch ? ", as much that is wrong does" : ", if it rounds so");
}

}  // namespace attncheck::properties
