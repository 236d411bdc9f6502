// Identities that tie dQ, dK and dV of one run to each other and to the forward. They need the
// bounds of a gradient, and no oracle of its values. Legend as in attention_gradient_numbers.h.
#include <cmath>

#include "properties/laws/attention_gradient_laws.h"
#include "properties/laws/attention_gradient_numbers.h"

namespace attncheck::properties {
namespace {

/// Adds the rows of a gradient of keys to the left side, channel by channel.
void add_key_sums(const AttentionProblem& problem, const BoundedGradient& grad,
                  Identity& identity) {
    for_each_slot(problem, true, [&](std::size_t row, std::size_t slot) {
        for (std::size_t d = 0; d < grad.width; ++d) {
            const std::size_t from = row * grad.width + d, to = slot * grad.width + d;
            identity.left[to] += grad.values[from];
            identity.allowed[to] += grad.allowed[from];
            identity.size[to] += std::fabs(grad.values[from]);
        }
    });
}

/// Adds sum_row <grad, weights> to a side.
void add_products(const AttentionProblem& problem, bool of_keys, const BoundedGradient& grad,
                  std::span<const double> weights, std::vector<double>& side, Identity& identity) {
    for_each_slot(problem, of_keys, [&](std::size_t row, std::size_t slot) {
        grad.add_product(row * grad.width, weights.subspan(row * grad.width, grad.width), side,
                         identity, slot);
    });
}

}  // namespace

/// Over a sequence and a key/value head, sum_j dV_j = sum_i (sum_j P_ij g_ij) dO_i: without
/// dropout, sum_i f_i dO_i.
/// Why     exchange of the sums; every row of the exact P sums to 1 (nsa.md 5.6).
/// Domain  any statistics and drop mask.
/// Bound   the bounds of dV added.
/// Kills   FAG-03 07 10 40, NSG-12 x01 x02 x07 x25 x28.
/// Shrinks to one query, one key or block of keys, one head, one non-zero dO element.
Verdict value_sum(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const GradientNumbers in(problem);
    const std::vector<double> kept = in.kept();
    const BoundedGradient dv(run, expected_of(problem, in.gradient_inputs(), context.rounding), "dv");
    Identity identity = identity_per_slot(problem, dv.width);
    add_key_sums(problem, dv, identity);
    for_each_slot(problem, false, [&](std::size_t row, std::size_t slot) {
        for (std::size_t d = 0; d < dv.width; ++d) {
            const double grad = kept[row] * in.output_grad[row * dv.width + d];
            identity.right[slot * dv.width + d] += grad;
            identity.size[slot * dv.width + d] += std::fabs(grad);
        }
    });
    return identity.verdict("dv", "sum_j dV_j = sum_ij P_ij g_ij dO_i");
}

/// Over a sequence and a key/value head, sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i.
/// Why     sum_j dS_ij = f_i <dO_i, O*_i> - f_i <dO_i, O_i>. The exact output makes it 0, since a
///         shift of all keys changes nothing (nsa.md 5.6); the rest is the change of the given O.
/// Domain  any statistics, given output, bias, rope and drop mask; neither softcap nor sink.
/// Bound   the bounds of dK added.
/// Kills   FAG-08 10 40, NSG-02 12 x17 x18 x24 x26.
/// Shrinks to one query, one key or block of keys, one head, one non-zero element of each input.
Verdict key_sum(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (!problem.sink.empty() || problem.softcap > 0 || context.rounding.own_forward)
        return inapplicable();
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const GradientNumbers in(problem);
    const BoundedGradient dk(run, expected_of(problem, in.gradient_inputs(), context.rounding), "dk");
    const auto value_width = static_cast<std::size_t>(problem.shape.value_dim);
    Identity identity = identity_per_slot(problem, dk.width);
    add_key_sums(problem, dk, identity);
    for_each_slot(problem, false, [&](std::size_t row, std::size_t slot) {
        const double sum =
            in.factor[row] * (dot_of(in.output_grad, in.exact_output, row, value_width) -
                              dot_of(in.output_grad, in.output, row, value_width));
        const double size =
            in.factor[row] * (size_of(in.output_grad, in.exact_output, row, value_width) +
                              size_of(in.output_grad, in.output, row, value_width));
        for (std::size_t d = 0; d < dk.width; ++d) {
            const double q = in.scale * in.query[row * dk.width + d];
            identity.right[slot * dk.width + d] += sum * q;
            identity.size[slot * dk.width + d] += size * std::fabs(q);
        }
    });
    return identity.verdict("dk", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i");
}

/// Over a sequence and a key/value head, <dQ, Q> = <dK, K> and <dV, V> = sum_i f_i <dO_i, O*_i>; a
/// rope is part of its row.
/// Why     Euler: both sides of the first are scale sum_ij dS'_ij <q_i, k_j>, the derivative along
///         ln(scale), whatever the bias and the softcap; both of the second sum_ij P_ij g_ij <dO_i, v_j>
///         (nsa.md 5.6).
/// Domain  any statistics, given output, bias, rope and drop mask.
/// Bound   sum of the bounds times the sizes they meet.
/// Kills   FAG-07 08 10 13 40, NSG-02 x01 x23 x24 x26 x27.
/// Shrinks to one query, one key or block of keys, one head, one non-zero element of each input.
Verdict euler(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const GradientNumbers in(problem);
    const ExpectedOutputs expected = expected_of(problem, in.gradient_inputs(), context.rounding);
    const BoundedGradient dq(run, expected, "dq"), dk(run, expected, "dk"),
        dv(run, expected, "dv");
    Identity scores = identity_per_slot(problem), values = identity_per_slot(problem);
    add_products(problem, false, dq, in.query, scores.left, scores);
    add_products(problem, true, dk, in.key, scores.right, scores);
    add_products(problem, true, dv, in.value, values.left, values);
    for_each_slot(problem, false, [&](std::size_t row, std::size_t slot) {
        values.right[slot] +=
            in.factor[row] * dot_of(in.output_grad, in.exact_output, row, dv.width);
        values.size[slot] +=
            in.factor[row] * size_of(in.output_grad, in.exact_output, row, dv.width);
    });
    Verdict all = scores.verdict("dq and dk", "<dQ, Q> = <dK, K>");
    join(all, values.verdict("dv", "<dV, V> = sum f <dO, O*>"));
    return all;
}

}  // namespace attncheck::properties
