#include "properties/laws/call_properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "properties/case/derived.h"
#include "properties/judge/rules.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

/// True if the element still holds the pattern its output was filled with.
bool holds_pattern(std::uint32_t bits, std::size_t element_size, Poison poison) {
    std::uint32_t pattern = 0;
    for (std::size_t i = 0; i < element_size; ++i)
        pattern |= static_cast<std::uint32_t>(poison) << (8 * i);
    return bits == pattern;
}

/// Elements that show the pattern in both runs were not written in either.
std::optional<Verdict> find_unwritten(const Spec& spec, const Call& call, const CallResult& ones,
                                      const CallResult& mixed) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output) continue;
        std::size_t unwritten = 0, first = 0;
        for (std::size_t k = 0; k < ones.outputs[i].size(); ++k)
            if (holds_pattern(ones.outputs[i][k], tensor.element_size(), Poison::ones) &&
                holds_pattern(mixed.outputs[i][k], tensor.element_size(), Poison::mixed))
                if (unwritten++ == 0) first = k;
        if (unwritten > 0)
            return Verdict::fail(
                tensor.name + " not written",
                fmt::format("{} of {} elements of {} were never written; first: {}", unwritten,
                            ones.outputs[i].size(), tensor.name,
                            place_of(spec, call, tensor.name, first)),
                Tier::memory);
    }
    return std::nullopt;
}

/// Two results of one call. Outputs without an expectation are the judge's where the order of sums
/// is open.
Verdict same_outputs(const Spec& spec, const PropertyContext& context, const CaseProblem& problem,
                     const CallResult& left, const CallResult& right,
                     const std::string& relation) {
    const Call& call = problem.call;
    const bool open = context.rounding.any_order;
    std::optional<ExpectedOutputs> expected;
    Verdict all;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output || left.outputs[i] == right.outputs[i]) continue;
        if (open && !expected) expected = problem.expected(context.rounding);
        if (open && std::ranges::find(*expected, tensor.name, &ExpectedOutputs::value_type::first) ==
                        expected->end()) {
            for (const CallResult* result : {&left, &right})
                join(all, problem.judge(*result, context.rounding));
            ++all.differing;
            continue;
        }
        OpenOrder of_tensor;
        if (open) of_tensor = [&] { return tensor_of(*expected, tensor.name); };
        join(all, verdict_on_same_bits(
                      tensor.name, tensor.type(), left.outputs[i], right.outputs[i], relation,
                      [&](std::size_t k) { return place_of(spec, call, tensor.name, k); }, {},
                      of_tensor));
    }
    return all;
}

/// Legality of a broken call has one answer; building it can only fail when an edit names nothing
/// (any more).
std::optional<Call> broken_call(const Spec& spec) {
    try {
        return spec.schema->build(spec);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

/// Whether a call with this ruling may return this status.
bool is_status_of(const ref::Ruling& ruling, int status) {
    if (status == ruling.status) return true;
    if (ruling.accepted()) return false;
    if (ruling.any_status) return status != ATTNCHECK_OK;
    return ruling.either_status &&
           (status == ATTNCHECK_ERR_NULLPTR || status == ATTNCHECK_ERR_INVALID);
}

/// Expected values first, then the judge.
Verdict verdict_on_result(const Spec& spec, const CaseProblem& problem, const CallResult& result,
                          const ExpectedOutputs& expected, const PropertyContext& context) {
    if (context.rule)
        return verdict_by_rule(*context.rule, spec, problem.call, result, expected,
                               problem.composition_errors);
    Verdict verdict = verdict_on_values(spec, problem.call, result, expected);
    if (verdict.failed() || !problem.judge) return verdict;
    const double worst = verdict.worst_ratio;
    verdict = problem.judge(result, context.rounding);
    verdict.worst_ratio = std::max(worst, verdict.worst_ratio);
    return verdict;
}

}  // namespace

Verdict check_agreement(const Spec& spec, PropertyContext& context, const CaseProblem& problem) {
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    Verdict verdict =
        verdict_on_result(spec, problem, result, problem.expected(context.rounding), context);
    if (!verdict.failed()) return verdict;
    const CallResult again =
        context.candidate.run(problem.call, {Placement::ends_at_guard, Poison::mixed});
    if (again.ok())
        if (auto unwritten = find_unwritten(spec, problem.call, result, again)) return *unwritten;
    return verdict;
}

Verdict check_memory(const Spec& spec, PropertyContext& context, const CaseProblem& problem) {
    const CallResult ones =
        context.candidate.run(problem.call, {Placement::ends_at_guard, Poison::ones});
    if (auto verdict = verdict_unless_ok(ones)) return *verdict;
    const CallResult mixed =
        context.candidate.run(problem.call, {Placement::begins_at_guard, Poison::mixed});
    if (auto verdict = verdict_unless_ok(mixed)) return *verdict;
    for (const CallResult* result : {&ones, &mixed})
        if (!result->damage.empty())
            return Verdict::fail(
                "memory: " + result->damage.front().tensor,
                fmt::format("{}: {}", result->damage.front().tensor, result->damage.front().what),
                Tier::memory);
    if (auto unwritten = find_unwritten(spec, problem.call, ones, mixed)) return *unwritten;
    return {};
}

Verdict check_repeatable(const Spec& spec, PropertyContext& context, const CaseProblem& problem) {
    const CallResult first = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(first)) return *verdict;
    const CallResult second = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(second)) return *verdict;
    Verdict verdict = same_outputs(spec, context, problem, first, second, "called again");
    if (verdict.failed()) return verdict;
    const CallResult third =
        context.candidate.run(problem.call, {Placement::begins_at_guard, Poison::mixed});
    if (auto other = verdict_unless_ok(third)) return *other;
    join(verdict, same_outputs(spec, context, problem, first, third,
                               "with other memory contents before the call"));
    return verdict;
}

Verdict check_concurrent(const Spec& spec, PropertyContext& context, const CaseProblem& problem,
                         const CaseProblem& other) {
    const CallResult alone = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(alone)) return *verdict;
    const ExpectedOutputs expected = problem.expected(context.rounding),
                          other_expected = other.expected(context.rounding);
    constexpr int kRounds = 3, kRepetitions = 16;
    for (int round = 0; round < kRounds; ++round) {
        const CaseProblem* problems[] = {&problem, &other};
        const Call* calls[] = {&problem.call, &other.call};
        const auto results = context.candidate.run_together(calls, kRepetitions);
        for (std::size_t k = 0; k < 2; ++k) {
            if (auto verdict = verdict_unless_ok(results[k])) return *verdict;
            Verdict verdict = verdict_on_result(spec, *problems[k], results[k],
                                                k == 0 ? expected : other_expected, context);
            if (!verdict.failed()) continue;
            verdict.failure = "wrong when called from two threads";
            verdict.message =
                "two calls at once (this case with seed and seed+1): " + verdict.message;
            return verdict;
        }
    }
    return {};
}

Verdict check_history(const Spec& spec, PropertyContext& context, const CaseProblem& before,
                      const CaseProblem& problem, const std::string& earlier) {
    context.candidate.restart();
    const CallResult first = context.candidate.run(before.call, {});
    auto earlier_verdict = verdict_unless_ok(first);  // a refused call too may leave something behind
    if (earlier_verdict && earlier_verdict->kind != Verdict::Kind::declined) return *earlier_verdict;
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    Verdict verdict =
        verdict_on_result(spec, problem, result, problem.expected(context.rounding), context);
    if (verdict.failed())
        verdict.message = fmt::format("after a call with {}: {}", earlier, verdict.message);
    return verdict;
}

namespace {

/// `call` as the candidate answers it, against the ruling on it.
Verdict verdict_on_answer(const Call& call, const ref::Ruling& ruling, PropertyContext& context) {
    const CallResult result = context.candidate.run(call, {});
    if (result.died()) {
        Verdict verdict = *verdict_unless_ok(result);
        verdict.message += ruling.accepted() ? " on legal arguments"
                                             : fmt::format(" instead of returning {} ({})",
                                                           ruling.status, ruling.message);
        return verdict;
    }
    if (result.status == ATTNCHECK_DECLINED) return {Verdict::Kind::declined, {}, {}, 0, {}, {}};
    if (!is_status_of(ruling, result.status)) {
        if (ruling.accepted())
            return Verdict::fail(
                "rejected a legal call",
                fmt::format("returned {} for a legal call, expected 0", result.status));
        const std::string what = result.status == ATTNCHECK_OK ? "accepted" : "wrong status for";
        return Verdict::fail(fmt::format("{} bad {}", what, ruling.parameter),
                             fmt::format("returned {}, expected {}: {}", result.status,
                                         ruling.status, ruling.message));
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
    Verdict verdict = verdict_on_answer(*call, ruling, context);
    verdict.clause = ruling.clause;
    return verdict;
}

void add_validation_properties(std::vector<Property>& list, void (*plain)(Spec&),
                               EditGroups (*edits)(const Spec&), int factor,
                               const std::vector<ClauseEdge>* clauses) {
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
    one.clauses = clauses;
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

void add_call_properties(std::vector<Property>& list, const CallProperties& of) {
    const auto agreement = [of](const Spec& spec, PropertyContext& context) {
        return check_agreement(spec, context, of.problem(spec));
    };
    list.push_back({"agreement",
                    "outputs agree with the reference within the rigorous bound",
                    agreement,
                    of.adapt_agreement,
                    {}});
    // Contract decision 12: a zero factor is not hidden, a hidden element is. Kills skipping zero
    // factors or NaN, clamping, reading past what is visible.
    list.push_back({"non_finite",
                    "NaN and infinity reach exactly the elements they must",
                    agreement,
                    [](Spec& spec, Random&) { spec.recipe = Recipe::specials; },
                    {}});
    list.push_back({"memory",
                    "every element written, nothing else written or read, inputs untouched",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_memory(spec, context, of.problem(spec));
                    },
                    {},
                    {}});
    list.push_back({"repeatable",
                    "the same bits when called again and under other memory contents",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_repeatable(spec, context, of.problem(spec));
                    },
                    {},
                    {}});
    list.push_back({"concurrent",
                    "calls from two threads do not disturb each other",
                    [of](const Spec& spec, PropertyContext& context) {
                        Spec other = spec;
                        other.seed = spec.seed + 1;
                        return check_concurrent(spec, context, of.problem(spec), of.problem(other));
                    },
                    [](Spec& spec, Random&) { without_extremes(spec); },
                    {}});
    list.push_back({"history",
                    "a call does not depend on the one before it",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_history(spec, context, of.problem(of.earlier(spec)),
                                             of.problem(spec), of.earlier_words);
                    },
                    [of](Spec& spec, Random& random) {
                        without_extremes(spec);
                        if (of.adapt_history) of.adapt_history(spec, random);
                    },
                    {}});
}

}  // namespace attncheck::properties
