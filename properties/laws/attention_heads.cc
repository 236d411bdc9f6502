// Attention laws of rearranged heads.
#include <numeric>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"

namespace attncheck::properties {

using Int = std::int64_t;

Verdict verdict_on_moved_heads(const AttentionOperator& of, const AttentionProblem& problem,
                               PropertyContext& context, const std::vector<Int>& query_source,
                               const std::vector<Int>& kv_source, const std::string& relation) {
    const AttentionProblem rearranged = of.with_heads(problem, query_source, kv_source);
    const AttentionRun left(of, problem, context), right(of, rearranged, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const auto moved = [&](const AttentionOutput& output, const auto& values) {
        if (output.is_sum && output.heads == 1) return values;  // one bias for all heads
        return gather_heads(values, output.heads, output.of_kv_heads() ? kv_source : query_source,
                            output.width);
    };
    Verdict all = verdict_on_moved_runs(
        left, right, context, relation,
        [&](const std::string& name, const std::vector<double>& values) {
            return moved(problem.output_named(name), values);
        });
    for (const AttentionOutput& output : problem.outputs())
        if (output.is_list())
            join(all, verdict_on_lists(of, {rearranged, moved(output, left.bits(output.name))},
                                       {rearranged, right.bits(output.name)}, context, relation));
    return all;
}

/// Key/value heads, with their query heads, masks, biases, drop bits and lists, do not mix.
/// Why     query head n reads key/value head n / G and its lists only (flash_attention.md 2.2);
///         scores of blocks are summed over one group.
/// Bound   twice that of one run: the same rows in another order. Lists the same or right.
/// Kills   FA-18 42 46 58, FAG-13 18, NSF-21 x22 x28 x60, NSG-x11 x15 x19, NCA-x15 x20 x23 x29.
/// Shrinks to two key/value heads with different lists or keys, one non-zero logit.
Verdict head_permutation(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const Int heads = problem.shape.kv_heads, group = problem.shape.group();
    if (heads < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> kv_source = permutation(heads, random);
    std::vector<Int> query_source;
    for (const Int head : kv_source)
        for (Int g = 0; g < group; ++g) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(of, problem, context, query_source, kv_source,
                                  "key/value heads permuted with their groups");
}

/// The query heads of a group do not mix but in sums over the group: dk, dv and scores of blocks.
/// Why     they share keys, values and lists, and nothing else.
/// Bound   twice that of one run; lists the same or right.
/// Kills   FA-38 46 52 58 59 66, NSF-x22 x23 x24, NSG-12 x19 x28, NCA-x15 x20 x23 x30.
/// Shrinks to one query and the smallest group that shows it (17 for NSF-x23), data 0.
Verdict group_permutation(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const Int heads = problem.shape.kv_heads, group = problem.shape.group();
    if (group < 2) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<Int> kv_source(static_cast<std::size_t>(heads)), query_source;
    std::iota(kv_source.begin(), kv_source.end(), Int{0});
    for (Int head = 0; head < heads; ++head)
        for (const Int g : permutation(group, random)) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(of, problem, context, query_source, kv_source,
                                  "query heads permuted inside their groups");
}

/// A group is its key/value head repeated G times.
/// Why     query head n reads key/value head n / G; dk and dv are sums over the group.
/// Domain  groups of two and more. Lists are not compared: repeated heads have separate lists.
/// Bound   the bounds of both runs added, for dk and dv those of all repeated heads.
/// Kills   FA-35 38 52, FAG-07 10 13, NSF-21 x22 x23 x46, NSG-12 17 x28,
///         NCA-x16 x18 x20 x23 x29 x33.
/// Shrinks to two key/value heads, group 2, one non-zero logit.
Verdict gqa_repeat(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const Int group = problem.shape.group();
    if (group < 2) return inapplicable();
    std::vector<Int> query_source, kv_source;
    for (Int n = 0; n < problem.shape.query_heads; ++n) {
        query_source.push_back(n);
        kv_source.push_back(n / group);
    }
    const AttentionProblem repeated = of.with_heads(problem, query_source, kv_source);
    const AttentionRun left(of, problem, context), right(of, repeated, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_repeated = problem.gradient ? expected_of(repeated, context.rounding)
                                                         : expected;  // the same rows
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        if (output.is_list()) continue;
        const std::string& name = output.name;
        const auto summed = [&](const std::vector<double>& values) {
            if (!output.of_keys) return values;
            const auto width = static_cast<std::size_t>(output.width),
                       count = static_cast<std::size_t>(group);
            std::vector<double> sum(values.size() / count);
            for (std::size_t k = 0; k < values.size(); ++k)
                sum[k / (width * count) * width + k % width] += values[k];
            return sum;
        };
        join(all, verdict_within(problem, name, left.values(name), summed(right.values(name)),
                                 sum_of(allowance(tensor_of(expected, name)),
                                        summed(allowance(tensor_of(of_repeated, name)))),
                                 "key/value heads repeated"));
    }
    return all;
}

}  // namespace attncheck::properties
