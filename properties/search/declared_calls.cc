#include "properties/search/declared_calls.h"

#include <algorithm>

#include "properties/case/case_of_call.h"
#include "properties/search/foreseen_declines.h"

namespace attncheck::properties {
namespace {

CallResult declined() { return declined_call("not among the features that are declared"); }

}  // namespace

bool DeclaredCalls::takes(const Call& call) const {
    if (!is_on_ || !declared_) return true;
    const std::optional<CaseOfCall> of = case_of(call);
    if (!of) return true;
    if (!declared_(of->spec)) return false;
    // A number that no value of a field gives is for a candidate that takes them all.
    return std::ranges::all_of(of->unsaid, [&](std::size_t f) {
        const NumberField& field = call.description->numbers[f];
        Spec other = of->spec;
        for (std::int64_t value = field.min; value <= field.max; value += field.step) {
            other.numbers[f] = value;
            if (!declared_(other)) return false;
        }
        return true;
    });
}

CallResult DeclaredCalls::run(const Call& call, const RunOptions& options) {
    return takes(call) ? candidate_.run(call, options) : declined();
}

std::vector<CallResult> DeclaredCalls::run_together(std::span<const Call* const> calls,
                                                    int repetitions) {
    const auto is_taken = [&](const Call* call) { return takes(*call); };
    if (std::ranges::all_of(calls, is_taken)) return candidate_.run_together(calls, repetitions);
    return std::vector<CallResult>(calls.size(), declined());
}

}  // namespace attncheck::properties
