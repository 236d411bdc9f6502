// Attention laws of the softmax statistics of one run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/attention_sight.h"
#include "ref/attention/attention_roundoff.h"

namespace attncheck::properties {

Verdict verdict_on_pair(const AttentionProblem& problem, const std::vector<double>& row_max,
                        const std::vector<double>& row_sum, const ref::RoundingClass& rounding,
                        ref::Grant grant) {
    const AttentionNumbers numbers(problem);
    const auto expected =
        ref::expected_attention(problem.forward(numbers), {problem.dtype, rounding}, grant);
    const auto lanes = static_cast<std::size_t>(problem.output_named("softmax_max").width);
    const std::vector<double> allowed = allowance(expected.lse);
    const double unit = ref::accumulator_roundoff({problem.dtype, rounding});
    const ref::AttentionRoundoff roundoff({problem.dtype, rounding});
    // What exp(0) may lack (exp=N), and its cast (sum=rounded) takes from that.
    const double one = roundoff.exp_of_zero_is_one ? 0 : roundoff.exp + roundoff.row_sum;
    std::vector<double> lse(row_max.size()), exact(lse.size()), bound(lse.size()),
        low(lse.size(), 1), slack(lse.size());
    for (std::size_t k = 0; k < lse.size(); ++k) {
        const std::size_t row = k / lanes;
        if (!std::isfinite(allowed[row]) || !(expected.row_sum.value[row] > 0)) continue;
        lse[k] = row_max[k] + std::log(row_sum[k]);
        exact[k] = expected.lse.value[row];
        bound[k] = allowed[row];
        low[k] = std::min(row_sum[k], 1.0);
        slack[k] = 0x1p-20 + 4 * unit * std::fabs(row_max[k]) + one;
    }
    Verdict all = verdict_within(problem, "softmax_max", lse, exact, bound,
                                 "row_max + log(row_sum) against the exact LSE");
    if (rounding.lse_statistics) return all;  // the sum may be any number
    join(all, verdict_within(problem, "softmax_sum", low, std::vector<double>(low.size(), 1),
                             slack, "row_sum at least 1"));
    return all;
}

std::optional<Verdict> lse_of_base_2(const AttentionProblem& problem, const Bits& lse,
                                     const ref::ExpectedTensor& expected) {
    constexpr double kLn2 = 0.693147180559945309;
    const std::vector<double> allowed = allowance(expected);
    std::int64_t wrong = 0, first = -1;
    for (std::size_t k = 0; k < lse.size(); ++k) {
        if (!std::isfinite(allowed[k])) continue;
        const double got = ref::decode(ref::Dtype::fp32, lse[k]);
        // The product with log2(e) rounds once more.
        if (!(std::fabs(got * kLn2 - expected.value[k]) <=
              2 * allowed[k] + 0x1p-22 * std::fabs(expected.value[k])))
            return std::nullopt;
        if (std::fabs(got - expected.value[k]) <= allowed[k]) continue;
        if (wrong++ == 0) first = static_cast<std::int64_t>(k);
    }
    if (wrong == 0) return std::nullopt;
    const auto k = static_cast<std::size_t>(first);
    return Verdict::fail(
        "lse is log2",
        fmt::format("lse times ln 2 is right in all rows, lse itself is wrong in {} of {}; first:\n"
                    "  {}  expected {:.9g}  got {:.9g}",
                    wrong, lse.size(), problem.place("lse", k), expected.value[k],
                    ref::decode(ref::Dtype::fp32, lse[k])),
        Tier::bound);
}

Verdict verdict_on_empty_rows(const AttentionProblem& problem, const std::vector<double>& lse) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::vector<char> with_keys = rows_that_see_keys(problem);
    for (std::size_t row = 0; row < lse.size(); ++row) {
        const auto head = row % static_cast<std::size_t>(problem.shape.query_heads);
        const bool has_sink = !problem.sink.empty() && problem.sink[head] != -kInfinity;
        if (!with_keys[row] && !has_sink && lse[row] != -kInfinity)
            return Verdict::fail("lse of a row without keys",
                                 fmt::format("{}  expected -inf  got {:.9g}",
                                             problem.place("lse", row), lse[row]));
    }
    return {};
}

/// The eight elements of a statistic are one number, and the two statistics belong together.
/// Why     contract decision 3. row_max + log(row_sum) is the logarithm of sum exp(logit), whatever
///         maximum was subtracted, and its error is smaller than those of both: the error of the
///         maximum cancels. A sum with exp(0) = 1 in it is at least 1, up to the rounding of the
///         maximum.
/// Bound   that of the LSE for the pair; 2^-20, 4 u |row_max| and N u of exp=N for the sum against 1; the bits for
///         the eight elements.
/// Kills   FA-05 20 22 27 47 65, NSF-14 16 x01 x12 x14 x30 x31 x32 x55, NCA-x23 x25 x26 x27 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero logit.
Verdict statistics(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (!gives_statistics(problem)) return needs("softmax_max and softmax_sum");
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const auto lanes = static_cast<std::size_t>(problem.output_named("softmax_max").width);
    for (const char* name : {"softmax_max", "softmax_sum"}) {
        const Bits& bits = run.bits(name);
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (bits[k] != bits[k / lanes * lanes])
                return Verdict::fail(
                    std::string(name) + " is not the same 8 times",
                    fmt::format("{}  {:.9g}  first of the eight {:.9g}", problem.place(name, k),
                                ref::decode(ref::Dtype::fp32, bits[k]),
                                ref::decode(ref::Dtype::fp32, bits[k / lanes * lanes])));
    }
    return verdict_on_pair(problem, run.values("softmax_max"), run.values("softmax_sum"),
                           context.rounding, ref::Grant::rounding);
}

}  // namespace attncheck::properties
