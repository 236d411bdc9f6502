#include "properties/laws/attention_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Channel d of every row becomes channel source[d].
template <class T>
std::vector<T> with_channels(const std::vector<T>& rows, const std::vector<Int>& source) {
    return gather_heads(rows, std::ssize(source), source, 1);
}

/// The permutation of an output's channels; none: its rows have no channels of the inputs.
const std::vector<Int>* source_of(const AttentionProblem& problem, const AttentionOutput& output,
                                  const std::vector<Int>& of_logits,
                                  const std::vector<Int>& of_values) {
    if (output.is_logit_grad()) return &of_logits;
    return output.is_value_grad() || output.name == problem.output_name ? &of_values : nullptr;
}

}  // namespace

/// Channels of query and key rearranged alike leave the logits; those of value, output and output
/// gradient carry their own sums.
/// Why     <q, k> and <dO, O> are sums over channels, and no channel of V meets another one
///         (nsa.md 5.2, flash_attention.md 2.2).
/// Domain  moderate data; a rope is part of the row.
/// Bound   twice that of one run: the same products in another order. Lists the same or right.
/// Kills   channels that are taken in a wrong order for one operand. No mutant that it kills alone:
///         agreement sees a wrong channel as well, but only where the reference is right.
/// Shrinks to one query, one key, two channels.
Verdict channel_permutation(const AttentionOperator& of, const Spec& spec,
                            PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (problem.shape.head_dim < 2 && problem.shape.value_dim < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> of_logits = permutation(problem.shape.head_dim, random),
                           of_values = permutation(problem.shape.value_dim, random);
    AttentionProblem moved = problem;
    for (Bits* rows : {&moved.query, &moved.key}) *rows = with_channels(*rows, of_logits);
    for (Bits* rows : {&moved.value, &moved.output, &moved.output_grad})
        *rows = with_channels(*rows, of_values);
    const AttentionRun left(of, problem, context), right(of, moved, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "channels permuted";
    const ExpectedOutputs expected = expected_of(problem, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (output.is_list()) {
            join(all, verdict_on_lists(of, {problem, left.bits(name)}, {moved, right.bits(name)},
                                       context, kRelation));
            continue;
        }
        const std::vector<Int>* const source = source_of(problem, output, of_logits, of_values);
        const auto follow = [&](const std::vector<double>& rows) {
            return source ? with_channels(rows, *source) : rows;
        };
        join(all, verdict_within(moved, name, follow(left.values(name)), right.values(name),
                                 times(follow(allowance(tensor_of(expected, name))), 2),
                                 kRelation));
    }
    return all;
}

/// (2^a Q, 2^-a scale) has the logits of (Q, scale).
/// Why     scale <q, k> is the same number; away from overflow and underflow rounding does not look
///         at exponents. dQ goes with the scale.
/// Domain  moderate data, numbers below 2^-7 set to zero. Not where sums are kept in fp16.
/// Demand  the same bits; dQ scaled and dK the same, where they are normal numbers.
/// Kills   a scale of the caller that is taken for 1/sqrt(D) or applied twice: FA-32, NSG-02. No
///         mutant that it kills alone: agreement draws several scales.
/// Shrinks to one query, one key, one channel.
Verdict scale_folding(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    drop_tiny(problem.dtype, problem.query);
    AttentionProblem folded = problem;
    const int exponent = Random(mix(spec.seed)).pick<int>({-2, -1, 1, 2});
    if (!scale_exactly(problem.dtype, folded.query, exponent)) return inapplicable();
    const auto scaled_back = [exponent](Call& call) {
        const auto scale = std::ranges::find_if(
            call.reals, [](const Real& real) { return real.name.starts_with("scale"); });
        if (scale == call.reals.end()) throw std::logic_error(call.op + " has no scale");
        scale->value = std::ldexp(scale->value, -exponent);
    };
    folded.scale = std::ldexp(folded.scale, -exponent);
    const AttentionRun left(of, problem, context), right(of, folded, context, scaled_back);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::string relation =
        fmt::format("query times 2^{}, scale times 2^{}", exponent, -exponent);
    Verdict all = verdict_on_equal_bits(
        left, right, context, relation,
        [&](const std::string& name, std::size_t) {
            return !problem.output_named(name).is_logit_grad();
        });
    if (!problem.gradient) return all;
    join(all, verdict_on_scaled(left, right, context, "dq", -exponent, relation));
    join(all, verdict_on_scaled(left, right, context, "dk", 0, relation));
    return all;
}

/// A constant added to all values and to the given output leaves dQ, dK and dV.
/// Why     dP_ij = <dO_i, v_j> and delta_i = <dO_i, O_i> grow by the same <dO_i, c>, so that
///         dS = P (dP - delta) stays; not with dropout, whose dP is cut, or a sink.
/// Domain  values and given output rounded to multiples of 1/8, c whole numbers per key/value head:
///         both sums are stored exactly.
/// Bound   the bounds of both runs added; dV does not depend on V and keeps its bits.
/// Kills   a delta that is not that of the given output: FAG-08. No mutant that it kills alone:
///         `output_used` and agreement see the same.
/// Shrinks to one query, one key or block of keys, one head, one non-zero dO element.
Verdict value_shift_of_gradient(const AttentionOperator& of, const Spec& spec,
                                PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!problem.sink.empty() || problem.keep_prob != 1) return inapplicable();
    quantise(problem.dtype, problem.value);
    quantise(problem.result, problem.output);
    const Int width = problem.shape.value_dim, group = problem.shape.group();
    Random random(mix(spec.seed));
    std::vector<double> constants(static_cast<std::size_t>(problem.shape.kv_heads * width));
    for (double& constant : constants) constant = static_cast<double>(random.between(-3, 3));
    AttentionProblem shifted = problem;
    const auto add_for = [&](Int heads, Int per_head) {
        return [&, heads, per_head](double value, std::size_t k) {
            const Int head = static_cast<Int>(k) / width % heads / per_head;
            return value + constants[static_cast<std::size_t>(head * width) +
                                     k % static_cast<std::size_t>(width)];
        };
    };
    if (!change_exactly(problem.dtype, shifted.value, add_for(problem.shape.kv_heads, 1)) ||
        !change_exactly(problem.result, shifted.output,
                        add_for(problem.shape.query_heads, group)))
        return inapplicable();
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "a constant added to all values and to the output";
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_shifted = expected_of(shifted, context.rounding);
    Verdict all = verdict_on_equal_bits(
        left, right, context, kRelation,
        [&](const std::string& name, std::size_t) {
            return problem.output_named(name).is_value_grad();
        });
    for (const AttentionOutput& output : problem.outputs())
        if (!output.is_value_grad() && !output.is_sum)
            join(all, verdict_within(problem, output.name, left.values(output.name),
                                     right.values(output.name),
                                     sum_of(allowance(tensor_of(expected, output.name)),
                                            allowance(tensor_of(of_shifted, output.name))),
                                     kRelation));
    return all;
}

}  // namespace attncheck::properties
