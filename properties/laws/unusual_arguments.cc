#include "properties/laws/unusual_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <variant>

#include "properties/case/derived.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

/// Whether the edit keeps to what the candidate declares. A number that is a field of the case, too, is one of its values.
bool is_declared(const Edit& edit, const Spec& spec, const PropertyContext& context) {
    const auto number = std::get_if<std::int64_t>(&edit.value);
    if (!number || !edit.attribute.empty() || !edit.index.empty() || spec.schema->number(edit.name) < 0) return true;
    Spec other = spec;
    other.set(edit.name, *number);
    return context.takes(other);
}

/// Applies up to three of the edits, those after which the call is still legal.
std::vector<std::string> apply_some(std::vector<Edit> edits, std::uint64_t seed, Call& call) {
    constexpr std::size_t kMost = 3;
    Random random(mix(seed ^ 0x1e6a1));
    const auto wanted = static_cast<std::size_t>(random.between(1, kMost));
    std::vector<std::string> applied;
    while (applied.size() < wanted && !edits.empty()) {
        const auto at = random.between(0, std::ssize(edits) - 1);
        Call changed = call;
        apply_edit(changed, edits[static_cast<std::size_t>(at)]);
        if (rule(changed).accepted() && runnable_after_edits(changed)) {
            call = std::move(changed);
            applied.push_back(print(edits[static_cast<std::size_t>(at)]));
        }
        const std::string name = edits[static_cast<std::size_t>(at)].name;
        std::erase_if(edits, [&](const Edit& edit) { return edit.name == name; });
    }
    return applied;
}

}  // namespace

void add_unlimited_windows(const char* window, std::int64_t reach, std::vector<Edit>& out) {
    constexpr std::int64_t kIn32 = std::int64_t{1} << 32;  // 0 of the lower half would hide
    for (const std::int64_t value : {std::int64_t{-1}, reach, reach + 1, kIn32 - 1, kIn32,
                                     kIn32 + 1, INT64_MAX - 1, INT64_MAX})
        out.emplace_back(fmt::format("{}={}", window, value));
}

Property unusual_arguments_property(const MakeProblem& problem, EffectlessEdits edits) {
    const auto check = [problem, edits](const Spec& spec, PropertyContext& context) {
        constexpr std::uint64_t kWays = 6;  // others where the candidate does not take the first ones
        const CaseProblem usual = problem(spec);
        Verdict verdict = inapplicable();
        for (std::uint64_t way = 0; way < kWays; ++way) {
            CaseProblem unusual = usual;
            std::vector<Edit> allowed = edits(spec);
            std::erase_if(allowed, [&](const Edit& edit) { return !is_declared(edit, spec, context); });
            const std::vector<std::string> applied = apply_some(std::move(allowed), spec.seed + way, unusual.call);
            if (applied.empty()) break;
            verdict = check_agreement(spec, context, unusual);
            if (verdict.kind == Verdict::Kind::declined) continue;
            // A call that is wrong without them as well is no news of these arguments.
            if (verdict.failed() && !check_agreement(spec, context, usual).failed())
                verdict.message = fmt::format("with {}, which has no effect here: {}",
                                              fmt::join(applied, ", "), verdict.message);
            break;
        }
        return verdict;
    };
    Property property{"unusual_arguments",
                      "legal arguments without effect leave the values right", check,
                      [](Spec& spec, Random&) { without_extremes(spec); },
                      [edits](const Spec& spec) { return !edits(spec).empty(); }};
    property.case_divisor = 2;
    return property;
}

}  // namespace attncheck::properties
