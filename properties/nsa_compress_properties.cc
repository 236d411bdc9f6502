// NsaCompress and its gradient against the reference, and what a call may do to memory and to later
// calls.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/check.h"
#include "properties/nsa_compress_case.h"

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
                            place_of(spec, call, tensor.name, first)));
    }
    return std::nullopt;
}

/// Every output is within the rigorous bound of the reference, and exact where arithmetic is.
/// Why     Y, dX and dW are sums of products; any order of fp32 accumulation stays within gamma_n
/// of the exact sum. Domain  every legal case, every data recipe, every layout. Bound
/// verification.md 4.1, 4.2; 0 beyond the final rounding where every partial sum is exact in fp32.
/// Kills   NC-01 NC-03 NC-06 NC-07 NC-08 NC-11 NC-12 NC-17 NCG-02 NCG-05 NCG-09 NCG-10 ALL-02
/// ALL-03 ALL-05. Shrinks to one sequence of one block, one head, 16 channels, one non-zero element
/// in each factor.
Verdict agreement(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    Verdict verdict =
        verdict_on_values(spec, problem.call, result, problem.expected(context.rounding));
    if (!verdict.failed()) return verdict;
    const CallResult again =
        context.candidate.run(problem.call, {Placement::ends_at_guard, Poison::mixed});
    if (again.ok())
        if (auto unwritten = find_unwritten(spec, problem.call, result, again)) return *unwritten;
    return verdict;
}

/// Every element of every output is written, no other byte is, and inputs are as they were.
/// Why     the interface says so; buffers end at an inaccessible page in one run and begin at one
/// in the other. Kills   NCG-04 ALL-11 ALL-14, reads and writes one element outside.
Verdict memory(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
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
                fmt::format("{}: {}", result->damage.front().tensor, result->damage.front().what));
    if (auto unwritten = find_unwritten(spec, problem.call, ones, mixed)) return *unwritten;
    return {};
}

Verdict same_outputs(const Spec& spec, const Call& call, const CallResult& left,
                     const CallResult& right, const std::string& relation) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output) continue;
        Verdict verdict = verdict_on_same_bits(
            tensor.name, tensor.type(), left.outputs[i], right.outputs[i], relation,
            [&](std::size_t k) { return place_of(spec, call, tensor.name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

/// The same call gives the same bits again, whatever was in the outputs before and wherever the
/// buffers lie. Why     nothing in the formula depends on time, address or old contents. Kills
/// accumulation into old output, uninitialised scratch, results that depend on alignment.
Verdict repeatable(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CallResult first = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(first)) return *verdict;
    const CallResult second = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(second)) return *verdict;
    Verdict verdict = same_outputs(spec, problem.call, first, second, "called again");
    if (verdict.failed()) return verdict;
    const CallResult third =
        context.candidate.run(problem.call, {Placement::begins_at_guard, Poison::mixed});
    if (auto other = verdict_unless_ok(third)) return *other;
    return same_outputs(spec, problem.call, first, third,
                        "with other memory contents before the call");
}

/// Data of small integers: every partial sum is exact, so the result is the correctly rounded exact
/// number. Why     products and sums of these stay below 2^24 units; verification.md 4.8. Bound   0
/// where the exact sum is representable, else its distance to the nearest number. Kills   every
/// indexing defect, without any tolerance.
Verdict exact_integers(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    const ExpectedOutputs expected = problem.expected(context.rounding);
    for (const auto& [name, tensor] : expected)
        for (std::size_t k = 0; k < tensor.size(); ++k)
            if (tensor.bound[k] > ref::half_ulp(problem.dtype, tensor.value[k]))
                return {Verdict::Kind::inapplicable, {}, {}, 0};
    return verdict_on_values(spec, problem.call, result, expected);
}

/// NaN and infinity in an input reach exactly the elements whose exact value depends on them.
/// Why     contract decision 12: a zero factor is not hidden, an uncovered token is.
/// Kills   skipping zero weights or NaN, clamping, reading past a window.
Verdict non_finite(const Spec& spec, PropertyContext& context) { return agreement(spec, context); }

/// Two calls at once on two threads give what each gives alone.
/// Why     the interface allows calls from several threads.
/// Kills   ALL-10.
Verdict concurrent(const Spec& spec, PropertyContext& context) {
    Spec other_spec = spec;
    other_spec.seed = spec.seed + 1;
    const CompressProblem problem(spec), other(other_spec);
    const CallResult alone = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(alone)) return *verdict;
    const ExpectedOutputs expected = problem.expected(context.rounding),
                          other_expected = other.expected(context.rounding);
    constexpr int kRounds = 3, kRepetitions = 16;
    for (int round = 0; round < kRounds; ++round) {
        const Call* calls[] = {&problem.call, &other.call};
        const auto results = context.candidate.run_together(calls, kRepetitions);
        for (std::size_t k = 0; k < 2; ++k) {
            if (auto verdict = verdict_unless_ok(results[k])) return *verdict;
            Verdict verdict =
                verdict_on_values(spec, *calls[k], results[k], k == 0 ? expected : other_expected);
            if (!verdict.failed()) continue;
            verdict.failure = "wrong when called from two threads";
            verdict.message =
                "two calls at once (this case with seed and seed+1): " + verdict.message;
            return verdict;
        }
    }
    return {};
}

/// A result does not depend on the call before it, although that had tensors of the same shapes.
/// Why     a call is a pure function of its arguments. Runs in a fresh process, so that the case
/// replays. Kills   ALL-09: plans cached by shape, scratch that keeps old sums.
Verdict history(const Spec& spec, PropertyContext& context) {
    Spec before =
        spec;  // the sequences in the opposite order: the same shapes, other lengths and data
    std::reverse(before.lists[0].begin(), before.lists[0].end());
    before.seed = spec.seed + 1;
    before.overrides.clear();
    if (before.recipe == Recipe::zeros) before.recipe = Recipe::ones;
    context.candidate.restart();
    const CompressProblem first(before), second(spec);
    const CallResult earlier = context.candidate.run(first.call, {});
    if (auto verdict = verdict_unless_ok(earlier)) return *verdict;
    const CallResult result = context.candidate.run(second.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    Verdict verdict =
        verdict_on_values(spec, second.call, result, second.expected(context.rounding));
    if (!verdict.failed()) return verdict;
    verdict.message = fmt::format("after a call with seq in the opposite order and other data: {}",
                                  verdict.message);
    return verdict;
}

/// One case in fifty has tens of thousands of tokens: indices that leave 16 bits, many tiles, many
/// threads.
void now_and_then_long(Spec& spec, Random& random) {
    if (!random.chance(2)) return;
    spec.set("heads", 1);
    spec.set("dim", 16);
    spec.lists[0].resize(1);
    spec.lists[0][0] =
        random.pick<std::int64_t>({4096, 16384, 65536, 70000}) + random.between(-20, 20);
}

void tame(Spec& spec) {
    if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
}

}  // namespace

void add_compress_agreement(std::vector<Property>& list, bool) {
    list.push_back({"agreement",
                    "outputs agree with the reference within the rigorous bound",
                    agreement,
                    now_and_then_long,
                    {}});
    list.push_back({"exact_integers", "small integer data: the correctly rounded exact result",
                    exact_integers, [](Spec& spec, Random&) { spec.recipe = Recipe::ints; },
                    [](const Spec& spec) { return spec.recipe <= Recipe::ints; }});
    list.push_back({"non_finite",
                    "NaN and infinity reach exactly the elements they must",
                    non_finite,
                    [](Spec& spec, Random&) { spec.recipe = Recipe::specials; },
                    {}});
    list.push_back({"memory",
                    "every element written, nothing else written or read, inputs untouched",
                    memory,
                    {},
                    {}});
    list.push_back({"repeatable",
                    "the same bits when called again and under other memory contents",
                    repeatable,
                    {},
                    {}});
    list.push_back({"concurrent",
                    "calls from two threads do not disturb each other",
                    concurrent,
                    [](Spec& spec, Random&) { tame(spec); },
                    {}});
    list.push_back({"history",
                    "a call does not depend on the one before it",
                    history,
                    [](Spec& spec, Random& random) {
                        tame(spec);
                        const auto lengths = spec.schema->number("lengths");
                        if (lengths >= 0) spec.numbers[static_cast<std::size_t>(lengths)] = 0;
                        if (spec.lists[0].size() < 2)
                            spec.lists[0].push_back(spec.number("block") + random.between(0, 40));
                    },
                    {}});
}

}  // namespace attncheck::properties
