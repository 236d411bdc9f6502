#include "properties/laws/call_properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "properties/case/derived.h"
#include "properties/case/many_sequences.h"
#include "properties/judge/bound_evidence.h"
#include "properties/judge/rules.h"
#include "properties/laws/broken_calls.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kCallsAtOnce = 4;
/// One case of so many is compared with other bounds too: they cost a reference each.
constexpr std::uint64_t kEvidenceEvery = 8;

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
                     const CallResult& left, const CallResult& right, const std::string& relation, bool open) {
    const Call& call = problem.call;
    std::optional<ExpectedOutputs> expected;
    Verdict all;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output || left.outputs[i] == right.outputs[i]) continue;
        if (open && !expected) expected = problem.expected(context.rounding);
        if (open && std::ranges::find(*expected, tensor.name,
                                      &ExpectedOutputs::value_type::first) == expected->end()) {
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

/// Legal cases of other shapes that the candidate takes, up to `count`: half of every sequence, or half of one field.
std::vector<Spec> of_other_shapes(const Spec& spec, const PropertyContext& context,
                                  std::size_t count) {
    std::vector<Spec> out;
    const auto add = [&](Spec other) {
        other.overrides.clear();
        if (out.size() < count && !illegal(other) && context.takes(other) &&
            shapes_of(extents_of(other)) != shapes_of(extents_of(spec)))
            out.push_back(std::move(other));
    };
    Spec halved = spec;
    for (auto& list : halved.lists)
        for (auto& length : list) length = (length + 1) / 2;
    add(halved);
    for (std::size_t i = 0; i < spec.numbers.size(); ++i) {
        const NumberField& field = spec.schema->numbers[i];
        if (field.word.empty() || spec.numbers[i] <= field.min) continue;
        Spec other = spec;
        const std::int64_t half = spec.numbers[i] / 2;
        other.numbers[i] = std::max(field.min, half - (half - field.min) % field.step);
        add(other);
    }
    return out;
}

/// Expected values first, then the judge.
Verdict verdict_on_result(const Spec& spec, const CaseProblem& problem, const CallResult& result,
                          const ExpectedOutputs& expected, const PropertyContext& context) {
    if (context.rule)
        return verdict_by_rule(*context.rule, spec, problem.call, result, expected,
                               problem.composition_errors);
    Verdict verdict = verdict_on_values(spec, problem.call, result, expected, context.rounding.lse_statistics);
    if (verdict.failed() && problem.cause)
        if (auto named = problem.cause(result, context.rounding)) return *named;
    if (verdict.failed() || !problem.judge) return verdict;
    const double worst = verdict.worst_ratio;
    const ElementCount elements = verdict.elements;
    verdict = problem.judge(result, context.rounding);
    verdict.worst_ratio = std::max(worst, verdict.worst_ratio);
    verdict.elements.add(elements);
    return verdict;
}

}  // namespace

Verdict check_agreement(const Spec& spec, PropertyContext& context, const CaseProblem& problem) {
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    Verdict verdict =
        verdict_on_result(spec, problem, result, problem.expected(context.rounding), context);
    if (!verdict.failed() && !context.rule && mix(spec.seed) % kEvidenceEvery == 0)
        verdict.bounds =
            bound_evidence(verdict.worst_ratio, problem.call, result, context.rounding, problem.expected);
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
    const CallResult mixed = context.candidate.run(
        problem.call,
        {.placement = Placement::begins_at_guard, .poison = Poison::mixed, .locks_inputs = true});
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
    Verdict verdict = same_outputs(spec, context, problem, first, second, "called again", context.rounding.any_order);
    if (verdict.failed()) return verdict;
    const bool open = context.rounding.any_order;
    // Fewer vectors fit between addresses of another alignment: with them an order of sums is promised to nobody.
    const CallResult third =
        context.candidate.run(problem.call, {Placement::off_alignment, Poison::mixed});
    if (!third.declined()) {  // a library may decline addresses that it cannot load from
        if (auto other = verdict_unless_ok(third)) {
            if (third.died())
                other->message += "; buffers began one element behind a page: they are aligned to elements only";
            return *other;
        }
        join(verdict, same_outputs(spec, context, problem, first, third,
                                   "with buffers aligned to elements only and other memory contents before the call", true));
        if (open) return verdict;
    }
    const CallResult fourth =
        context.candidate.run(problem.call, {Placement::begins_at_guard, Poison::mixed});
    if (auto other = verdict_unless_ok(fourth)) return *other;
    join(verdict, same_outputs(spec, context, problem, first, fourth, "with other memory contents before the call", open));
    return verdict;
}

namespace {

/// Of the call, whether it came to an end or not.
Verdict judged(const Spec& spec, const PropertyContext& context, const CaseProblem& problem, const CallResult& result) {
    if (auto early = verdict_unless_ok(result)) return *early;
    return verdict_on_result(spec, problem, result, problem.expected(context.rounding), context);
}

/// The failure of the call alone in a new process: then what ran before or with it is not to blame.
std::optional<Verdict> failure_alone(const Spec& spec, PropertyContext& context,
                                     const CaseProblem& problem) {
    context.candidate.restart();
    const CallResult result = context.candidate.run(problem.call, {});
    Verdict verdict = judged(spec, context, problem, result);
    if (!verdict.failed()) return std::nullopt;
    return verdict;
}

/// How often each of the calls is made in a round, `seconds` of them one behind the other: calls that
/// are over at once meet each other only when repeated, slow ones meet all the time.
int repetitions_of(double seconds) {
    constexpr double kRound = 0.025;  ///< seconds on one core
    constexpr int kLeast = 3, kMost = 16;
    return static_cast<int>(std::clamp(kRound / std::max(seconds, 1e-9), double{kLeast}, double{kMost}));
}

}  // namespace

Verdict check_concurrent(const Spec& spec, PropertyContext& context,
                         const std::vector<CaseProblem>& problems,
                         const std::vector<Call>& companions) {
    std::vector<const CaseProblem*> taken;
    std::vector<const Call*> calls;
    std::vector<ExpectedOutputs> expected;
    double seconds = 0;
    for (const CaseProblem& problem : problems) {
        const CallResult alone = context.candidate.run(problem.call, {});
        auto verdict = verdict_unless_ok(alone);
        if (verdict && taken.empty()) return *verdict;
        if (alone.declined()) continue;
        seconds += alone.seconds;
        taken.push_back(&problem);
        calls.push_back(&problem.call);
        expected.push_back(problem.expected(context.rounding));
    }
    for (const Call& companion : companions) {
        const CallResult alone = context.candidate.run(companion, {});
        if (alone.declined()) continue;
        seconds += alone.seconds;
        calls.push_back(&companion);
    }
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
        const auto results = context.candidate.run_together(calls, repetitions_of(seconds));
        for (std::size_t k = 0; k < results.size(); ++k) {
            auto failed = verdict_unless_ok(results[k]);
            if (k >= taken.size()) {  // another operator: only its death is this case's affair
                if (results[k].died()) return *failed;
                continue;
            }
            if (failed && failed->kind == Verdict::Kind::declined && k > 0) continue;
            Verdict verdict =
                failed ? *failed
                       : verdict_on_result(spec, *taken[k], results[k], expected[k], context);
            if (!verdict.failed() && !failed) continue;
            if (auto own = failure_alone(spec, context, *taken[k])) return *own;
            if (verdict.tier != Tier::crash && verdict.tier != Tier::memory)
                verdict.failure = "wrong when called from several threads";
            verdict.message = fmt::format(
                "{} calls at once (this case, the next seed, {}; wrong: {}): {}", results.size(),
                companions.empty() ? "other shapes" : "other operators", k == 0 ? "this case" : fmt::format("the one behind it by {}", k),
                verdict.message);
            return verdict;
        }
    }
    return {};
}

Verdict check_history(const Spec& spec, PropertyContext& context, const MakeProblem& problem_of,
                      const std::vector<EarlierChange>& changes) {
    const CaseProblem problem = problem_of(spec);
    Verdict all;
    for (const auto& [cases, most] : earlier_calls(spec, changes, context)) {
        context.candidate.restart();
        std::string before;
        std::size_t taken = 0;
        for (const auto& [earlier, words] : cases) {
            const CallResult first = context.candidate.run(problem_of(earlier).call, {});
            if (first.declined()) continue;  // a refused call too may leave something behind
            if (auto verdict = verdict_unless_ok(first)) return *verdict;
            before += (taken == 0 ? "" : ", then one with ") + words;
            if (++taken == most) break;
        }
        const CallResult result = context.candidate.run(problem.call, {});
        Verdict verdict = judged(spec, context, problem, result);
        if (verdict.kind == Verdict::Kind::declined) return verdict;
        join(all, verdict);
        if (!verdict.failed()) continue;
        if (auto own = failure_alone(spec, context, problem)) return *own;
        verdict.message =
            fmt::format("after a call {}: {}", taken == 0 ? "that was declined" : "with " + before, verdict.message);
        return verdict;
    }
    return all;
}

Verdict check_after_rejection(const Spec& spec, PropertyContext& context,
                              const CaseProblem& problem) {
    const std::optional<Spec> broken = rejected_neighbour(spec);
    if (!broken) return inapplicable();
    context.candidate.restart();
    const CallResult first = context.candidate.run(*broken_call(*broken), {});
    if (first.died() || first.status == ATTNCHECK_OK) return inapplicable();  // validation tells
    const CallResult result = context.candidate.run(problem.call, {});
    Verdict verdict = judged(spec, context, problem, result);
    if (!verdict.failed()) return verdict;
    if (auto own = failure_alone(spec, context, problem)) return *own;
    verdict.message = fmt::format("after a call that was rejected for {}: {}",
                                  print(broken->edits.front()), verdict.message);
    return verdict;
}

void add_call_properties(std::vector<Property>& list, const CallProperties& of) {
    const auto agreement = [of](const Spec& spec, PropertyContext& context) {
        return check_agreement(spec, context, of.problem(spec));
    };
    /// Every element of every output is within its bound of the reference.
    /// Why     the reference computes the documented formula in binary64, and the bound follows the
    ///         roundings that the kernel declares through it (docs/judgement.md).
    /// Domain  every legal case.
    /// Bound   rigorous: no order of sums and no rounding that is declared can exceed it.
    /// Kills   wrong indices, masks, scales and sums that are larger than rounding.
    /// Shrinks to one query, one key, one head, one channel, one element that is not 0.
    list.push_back({"agreement", "outputs agree with the reference within the rigorous bound",
                    agreement, [of](Spec& spec, Random& random) {
                        if (of.adapt_agreement) of.adapt_agreement(spec, random);
                        draw_large_table(spec, random);
                    }});
    /// NaN and infinity in inputs reach exactly the elements that they must.
    /// Why     contract decision 12: a zero factor is not hidden, a hidden element is.
    /// Domain  every legal case, with NaN, infinities and numbers near the limits of the type.
    /// Bound   that of agreement; what is not finite in the reference must not be finite.
    /// Kills   skipping zero factors or NaN, clamping, reading past what is visible.
    list.push_back({"non_finite", "NaN and infinity reach exactly the elements they must",
                    agreement, [](Spec& spec, Random&) { spec.recipe = Recipe::specials; }});
    list.push_back({"memory",
                    "every element written, nothing else written or read, inputs untouched",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_memory(spec, context, of.problem(spec));
                    },
                    {},
                    {}});
    list.push_back({"repeatable",
                    "the same bits when called again, under other memory contents and at other addresses",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_repeatable(spec, context, of.problem(spec));
                    },
                    {},
                    {}});
    list.push_back({"concurrent",
                    "calls from several threads do not disturb each other",
                    [of](const Spec& spec, PropertyContext& context) {
                        Spec other = spec;
                        other.seed = spec.seed + 1;
                        std::vector<CaseProblem> problems;
                        problems.push_back(of.problem(spec));
                        problems.push_back(of.problem(other));
                        // Every second case runs at the time of other operators, if there are any.
                        std::vector<Call> companions;
                        if (context.companions && mix(spec.seed ^ 0x5eed) % 2 == 0)
                            companions = context.companions(spec, context.candidate.info());
                        if (companions.empty())
                            for (const Spec& shape : of_other_shapes(spec, context, kCallsAtOnce - 2))
                                problems.push_back(of.problem(shape));
                        return check_concurrent(spec, context, problems, companions);
                    },
                    [](Spec& spec, Random&) { without_extremes(spec); },
                    {}});
    list.push_back({"history",
                    "a call does not depend on the one before it",
                    [of](const Spec& spec, PropertyContext& context) {
                        return check_history(spec, context, of.problem, of.earlier);
                    },
                    [of](Spec& spec, Random& random) {
                        without_extremes(spec);
                        if (of.adapt_history) of.adapt_history(spec, random);
                    },
                    {}});
    Property rejection{"after_rejection",
                       "a call does not depend on a rejected one before it",
                       [of](const Spec& spec, PropertyContext& context) {
                           return check_after_rejection(spec, context, of.problem(spec));
                       },
                       [of](Spec& spec, Random& random) {
                           without_extremes(spec);
                           if (of.adapt_history) of.adapt_history(spec, random);
                       },
                       {}};
    rejection.validation = true;
    rejection.case_divisor = 2;  // each starts a process
    list.push_back(std::move(rejection));
}

}  // namespace attncheck::properties
