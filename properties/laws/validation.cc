// Validation as properties: what a candidate answers to illegal arguments.
#include <fmt/format.h>

#include <algorithm>

#include "properties/case/derived.h"
#include "properties/laws/broken_calls.h"
#include "properties/laws/call_properties.h"
#include "properties/laws/clause_tables.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

/// Whether a call with this ruling may return this status.
bool is_status_of(const ref::Ruling& ruling, int status) {
    if (status == ruling.status) return true;
    if (ruling.accepted()) return false;
    if (ruling.any_status) return status != ATTNCHECK_OK;
    return ruling.either_status &&
           (status == ATTNCHECK_ERR_NULLPTR || status == ATTNCHECK_ERR_INVALID);
}

/// What a message expects of a call that is rejected.
std::string expected_of(const ref::Ruling& ruling) {
    return ruling.any_status ? "a rejection" : std::to_string(ruling.status);
}

/// `call` as the candidate answers it, against the ruling on it.
Verdict verdict_on_answer(const Call& call, const ref::Ruling& ruling, PropertyContext& context) {
    const CallResult result = context.candidate.run(call, {});
    if (result.died()) {
        Verdict verdict = *verdict_unless_ok(result);
        verdict.message += ruling.accepted() ? " on legal arguments"
                                             : fmt::format(" instead of returning {} ({})",
                                                           expected_of(ruling), ruling.message);
        return verdict;
    }
    if (result.status == ATTNCHECK_DECLINED) return {Verdict::Kind::declined, {}, {}, 0, {}, {}};
    if (!is_status_of(ruling, result.status)) {
        if (ruling.accepted())
            return Verdict::fail(
                kRejectedLegal,
                fmt::format("returned {} for a legal call, expected 0", result.status));
        const std::string what = result.status == ATTNCHECK_OK ? "accepted" : "wrong status for";
        return Verdict::fail(fmt::format("{} bad {}", what, ruling.parameter),
                             fmt::format("returned {}, expected {}: {}", result.status,
                                         expected_of(ruling), ruling.message));
    }
    if (ruling.accepted()) return {};
    if (!result.damage.empty())
        return Verdict::fail("memory: " + result.damage.front().tensor,
                             fmt::format("rejected, but {}: {}", result.damage.front().tensor,
                                         result.damage.front().what),
                             Tier::memory);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output || !tensor.present) continue;
        const std::uint32_t untouched = tensor.element_size() == 1   ? 0xFFu
                                        : tensor.element_size() == 2 ? 0xFFFFu
                                                                     : 0xFFFFFFFFu;
        const auto& bits = result.outputs[i];
        const auto touched =
            std::find_if(bits.begin(), bits.end(), [&](std::uint32_t b) { return b != untouched; });
        if (touched != bits.end())
            return Verdict::fail(tensor.name + " written by a rejected call",
                                 fmt::format("rejected with {}, but {} was written at element {}",
                                             result.status, tensor.name, touched - bits.begin()));
    }
    return {};
}

}  // namespace

Verdict check_validation(const Spec& spec, PropertyContext& context) {
    const std::optional<Call> call = broken_call(spec);
    if (!call) return inapplicable();
    if (std::any_of(call->arrays.begin(), call->arrays.end(),
                    [](const HostArray& lengths) { return !lengths.present && lengths.size < 0; }))
        return inapplicable();  // absent or illegal: both are
    const ref::Ruling ruling = rule(*call);
    if (ruling.accepted() && !runnable_after_edits(*call)) return inapplicable();
    if (concerns_withheld(spec, *call, ruling)) return inapplicable();
    Verdict verdict = verdict_on_answer(*call, ruling, context);
    verdict.clause = ruling.clause;
    return verdict;
}

EditGroups edits_of_description(const Spec& spec) { return derived_edits(extents_of(spec)); }

void add_validation_properties(std::vector<Property>& list, void (*plain)(Spec&), int factor,
                               EditGroups (*edits)(const Spec&)) {
    const auto random_edit = [edits](const Spec& spec, Random& random) {
        return random.pick(random.pick(edits(spec)));
    };
    const auto meaningful = [](const Spec& spec) {
        return !spec.edits.empty() && broken_call(spec).has_value();
    };
    Property one{"validation",
                 "illegal arguments: right status, outputs untouched; legal ones accepted",
                 check_validation,
                 [plain, random_edit](Spec& spec, Random& random) {
                     plain(spec);
                     spec.edits = {random_edit(spec, random)};
                 },
                 meaningful};
    one.validation = true;
    one.case_factor = factor;
    one.edits = edits;
    one.clauses = &all_clauses();
    /// Several arguments are illegal at once.
    /// Why     the contract orders its rules: the first one that is broken decides the status.
    /// Domain  legal cases with two to four edits of arguments.
    /// Bound   the status of the ruling; outputs keep their contents, nothing crashes.
    /// Kills   checks in another order, and checks that use an argument before it was checked.
    Property several{"validation_combined",
                     "several illegal arguments at once: the first rule in order decides, no crash",
                     check_validation,
                     [plain, random_edit](Spec& spec, Random& random) {
                         plain(spec);
                         for (std::int64_t k = random.between(2, 4); k > 0; --k)
                             spec.edits.push_back(random_edit(spec, random));
                     },
                     meaningful};
    several.validation = true;
    several.case_factor = factor * 3 / 8;
    list.push_back(std::move(one));
    list.push_back(std::move(several));
}

}  // namespace attncheck::properties
