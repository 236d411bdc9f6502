// NsaCompress and its gradient against the reference, and what a call may do to memory and to later
// calls.
#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

CaseProblem case_problem(const Spec& spec) {
    const auto problem = std::make_shared<const CompressProblem>(spec);
    return {problem->call,
            [problem](const ref::RoundingClass& rounding) { return problem->expected(rounding); },
            {},
            [problem] {
                const auto input = problem->values("input"), weight = problem->values("weight");
                if (!problem->gradient)
                    return half_composition_errors(problem->shape, problem->dtype, input, weight);
                const auto output_grad = problem->values("output_grad");
                return half_composition_errors(problem->shape, problem->dtype, input, weight,
                                               output_grad);
            }};
}

/// Data of small integers: every partial sum is exact, so the result is the correctly rounded exact
/// number.
/// Why     products and sums of these stay below 2^24 units; verification.md 4.8.
/// Bound   0 where the exact sum is representable, else its distance to the nearest number.
/// Kills   every indexing defect, without any tolerance.
Verdict exact_integers(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CallResult result = context.candidate.run(problem.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    const ExpectedOutputs expected = problem.expected(context.rounding);
    for (const auto& [name, tensor] : expected)
        for (std::size_t k = 0; k < tensor.size(); ++k)
            if (tensor.bound[k] > ref::half_ulp(problem.dtype, tensor.value[k]))
                return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
    return verdict_on_values(spec, problem.call, result, expected);
}

/// One case in fifty has tens of thousands of tokens: indices that leave 16 bits, many tiles, many
/// threads, and gradients beyond 4 MiB, which an implementation may store past the cache.
void now_and_then_long(Spec& spec, Random& random) {
    if (!random.chance(2)) return;
    spec.set("heads", 1);
    const auto length = random.pick<std::int64_t>({4096, 16384, 65536, 70000});
    spec.set("dim", length > 65536 ? 32 : 16);
    spec.lists[0].resize(1);
    spec.lists[0][0] = length + random.between(-20, 20);
    if (length == 16384 && random.chance(50)) spec.set("dim", 160);
}

}  // namespace

/// Agreement: Y, dX and dW are sums of products; any order of fp32 accumulation stays within
/// gamma_n of the exact sum.
/// Domain  every legal case, every data recipe, every layout.
/// Bound   verification.md 4.1, 4.2; 0
///         beyond the final rounding where every partial sum is exact in fp32.
/// Kills   NC-01 NC-03 NC-06 NC-07 NC-08 NC-11 NC-12 NC-17 NCG-02 NCG-05 NCG-09 NCG-10 ALL-02
///         ALL-03 ALL-05.
/// Shrinks to one sequence of one block, one head, 16 channels, one non-zero element in each
///         factor.
void add_compress_agreement(std::vector<Property>& list, bool) {
    CallProperties of;
    of.problem = case_problem;
    of.adapt_agreement = now_and_then_long;
    of.adapt_history = [](Spec& spec, Random& random) {
        const auto lengths = spec.schema->number("lengths");
        if (lengths >= 0) spec.numbers[static_cast<std::size_t>(lengths)] = 0;
        if (spec.lists[0].size() < 2)
            spec.lists[0].push_back(spec.number("block") + random.between(0, 40));
    };
    of.earlier = [](const Spec& spec) {
        Spec before = spec;  // the same shapes, other lengths and data
        std::reverse(before.lists[0].begin(), before.lists[0].end());
        before.seed = spec.seed + 1;
        before.overrides.clear();
        if (before.recipe == Recipe::zeros) before.recipe = Recipe::ones;
        return before;
    };
    of.earlier_words = "seq in the opposite order and other data";
    add_call_properties(list, of);
    list.push_back({"exact_integers", "small integer data: the correctly rounded exact result",
                    exact_integers, [](Spec& spec, Random&) { spec.recipe = Recipe::ints; },
                    [](const Spec& spec) { return spec.recipe <= Recipe::ints; }});
}

}  // namespace attncheck::properties
