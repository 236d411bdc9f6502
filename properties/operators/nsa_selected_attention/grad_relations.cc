// Relations of the gradient of selected attention: which output gradient reaches which element,
// identities that tie dQ, dK and dV to each other and to the forward, and what the given statistics
// and output are used for. Most need no oracle of the backward: only its bounds. Legend as in
// nsa_selected_attention_grad_numbers.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_selected_attention/grad_numbers.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// An output gradient that is zero but for one row reaches that row's dQ and the keys it sees.
/// Why     every term of dQ_i, and every term that row i adds to dK and dV, has dO_i as a factor.
/// Domain  moderate data; dO is kept in one (query, head), any given output and statistics.
/// Demand  exact zeros elsewhere; the row's dQ keeps the bits that it has with the whole dO.
/// Kills   NSG-x05 x11 x15 x19 x20.
/// Shrinks to two queries, one block, one non-zero dO, V and K element each.
Verdict one_row(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const ref::SelectedAttentionShape& s = parts.shape;
    Random random(mix(spec.seed));
    const Int t = random.between(0, s.total_queries - 1),
              head = random.between(0, s.query_heads - 1), group = s.dense().group();
    SelectedParts single = parts;
    for (std::size_t k = 0; k < single.output_grad.size(); ++k)
        if (static_cast<Int>(k) / s.value_dim != t * s.query_heads + head)
            single.output_grad[k] = 0;
    const SelectedRun whole(parts, context), alone(single, context);
    if (auto trouble = trouble_of({&whole, &alone})) return *trouble;
    const std::string relation =
        fmt::format("with the output gradient of row {}, head {} alone", t, head);
    const auto is_row = [&](const std::string& name, std::size_t k) {
        return name == "dq" && static_cast<Int>(k) / s.head_dim == t * s.query_heads + head;
    };
    Verdict verdict = verdict_on_equal_bits(spec, whole, alone, relation, is_row);
    if (verdict.failed()) return verdict;
    const std::vector<char> seen = keys_seen_by(parts, t);
    for (const std::string& name : alone.output_names()) {
        const std::vector<double> values = alone.values(name);
        const std::size_t width = values.size() / seen.size();
        for (std::size_t k = 0; k < values.size(); ++k) {
            const bool reached = name == "dq"
                                     ? is_row(name, k)
                                     : seen[k / width] != 0 &&
                                           static_cast<Int>(k / width) % s.kv_heads == head / group;
            if (!reached && values[k] != 0)
                return Verdict::fail(name + " of an unreached row is not 0",
                                     fmt::format("{}: {}  expected 0  got {:.9g}", relation,
                                                 place_of(spec, alone.call, name, k), values[k]));
        }
    }
    return {};
}

/// Over a sequence and a key/value head, sum_j dV_j = sum_i dO_i over the rows that see a key.
/// Why     every row of P sums to 1 (nsa.md 5.6).
/// Domain  statistics of the reference, shifted or not.
/// Bound   the bounds of dV added, and eta_i |dO_i| for the rounding of the statistics.
/// Kills   NSG-12 x01 x02 x07 x25 x28.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero dO element.
Verdict value_sum(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedGradientNumbers in(parts);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    const std::vector<double> dv = run.values("dv"), bound = allowance(tensor_of(expected, "dv"));
    const auto width = static_cast<std::size_t>(parts.shape.value_dim);
    Identity identity = identity_per_slot(parts, width);
    for_each_slot(parts, true, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            identity.left[slot * width + d] += dv[at * width + d];
            identity.allowed[slot * width + d] += bound[at * width + d];
            identity.size[slot * width + d] += std::fabs(dv[at * width + d]);
        }
    });
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        if (!in.sees_keys(at)) return;
        for (std::size_t d = 0; d < width; ++d) {
            const double grad = in.output_grad[at * width + d];
            identity.right[slot * width + d] += grad;
            identity.allowed[slot * width + d] += in.statistics_error(at) * std::fabs(grad);
            identity.size[slot * width + d] += std::fabs(grad);
        }
    });
    return identity.verdict("dv", "sum_j dV_j = sum_i dO_i");
}

/// Over a sequence and a key/value head, sum_j dK_j = scale sum_i <dO_i, O*_i - O_i> q_i.
/// Why     sum_j dS_ij = sum_j P_ij dP_ij - delta_i sum_j P_ij = <dO_i, O*_i> - <dO_i, O_i>, times
/// 1 + eta_i: with the exact output it is 0, since shifting all keys changes nothing (nsa.md 5.6);
/// what is left is what was done to O.
/// Domain  statistics of the reference, shifted or not; any given output.
/// Bound   the bounds of dK added, and eta_i of each term.
/// Kills   NSG-02 12 x17 x18 x24 x26.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero element of each input.
Verdict key_sum(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    SelectedGradientNumbers in(parts);
    in.attend();
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    const std::vector<double> dk = run.values("dk"), bound = allowance(tensor_of(expected, "dk"));
    const auto width = static_cast<std::size_t>(parts.shape.head_dim),
               value_width = static_cast<std::size_t>(parts.shape.value_dim);
    const double scale = parts.narrowed_scale();
    Identity identity = identity_per_slot(parts, width);
    for_each_slot(parts, true, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            identity.left[slot * width + d] += dk[at * width + d];
            identity.allowed[slot * width + d] += bound[at * width + d];
            identity.size[slot * width + d] += std::fabs(dk[at * width + d]);
        }
    });
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        if (!in.sees_keys(at)) return;
        double sum = 0, size = 0;
        for (std::size_t d = 0; d < value_width; ++d) {
            const std::size_t k = at * value_width + d;
            sum += in.output_grad[k] * (in.exact_output[k] - in.output[k]);
            size += std::fabs(in.output_grad[k]) *
                    (std::fabs(in.exact_output[k]) + std::fabs(in.output[k]));
        }
        for (std::size_t d = 0; d < width; ++d) {
            const double q = scale * in.query[at * width + d];
            identity.right[slot * width + d] += sum * q;
            identity.allowed[slot * width + d] += in.statistics_error(at) * std::fabs(sum * q);
            identity.size[slot * width + d] += size * std::fabs(q);
        }
    });
    return identity.verdict("dk", "sum_j dK_j = scale sum_i <dO_i, O*_i - O_i> q_i");
}

/// Adds sum_row <grad, weights> to one side of an identity, with the bounds it brings.
void add_products(const SelectedParts& parts, bool of_keys, const std::vector<double>& grad,
                  const std::vector<double>& bound, const std::vector<double>& weights,
                  std::vector<double>& side, Identity& identity) {
    const ref::SelectedAttentionShape& s = parts.shape;
    const Int rows = of_keys ? s.total_keys * s.kv_heads : s.total_queries * s.query_heads;
    const std::size_t width = grad.size() / static_cast<std::size_t>(rows);
    for_each_slot(parts, of_keys, [&](std::size_t at, std::size_t slot) {
        for (std::size_t k = at * width; k < (at + 1) * width; ++k) {
            if (weights[k] == 0) continue;  // an overflowed element is not judged
            side[slot] += grad[k] * weights[k];
            identity.size[slot] += std::fabs(grad[k] * weights[k]);
            identity.allowed[slot] += bound[k] * std::fabs(weights[k]);
        }
    });
}

/// Over a sequence and a key/value head, <dQ, Q> = <dK, K> and <dV, V> = <dO, O*>.
/// Why     Euler: both sides of the first are scale sum_ij dS_ij <q_i, k_j>, the derivative along
/// ln(scale); both of the second sum_ij P_ij <dO_i, v_j>, up to the factor 1 + eta_i of the given
/// statistics (nsa.md 5.6).
/// Domain  statistics of the reference, shifted or not; any given output.
/// Bound   sum of the bounds times the sizes they meet, and eta_i |<dO_i, O*_i>|.
/// Kills   NSG-02 07 x01 x23 x24 x26 x27.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero element of each input.
Verdict euler(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    SelectedGradientNumbers in(parts);
    in.attend();
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    const auto bound = [&](const char* name) { return allowance(tensor_of(expected, name)); };
    Identity scores = identity_per_slot(parts), values = identity_per_slot(parts);
    add_products(parts, false, run.values("dq"), bound("dq"), in.query, scores.left, scores);
    add_products(parts, true, run.values("dk"), bound("dk"), in.key, scores.right, scores);
    add_products(parts, true, run.values("dv"), bound("dv"), in.value, values.left, values);
    const auto width = static_cast<std::size_t>(parts.shape.value_dim);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        if (!in.sees_keys(at)) return;
        const double product = dot_of(in.output_grad, in.exact_output, at, width);
        values.right[slot] += product;
        values.allowed[slot] += in.statistics_error(at) * std::fabs(product);
        values.size[slot] += size_of(in.output_grad, in.exact_output, at, width);
    });
    Verdict all = scores.verdict("dq and dk", "<dQ, Q> = <dK, K>");
    join(all, values.verdict("dv", "<dV, V> = <dO, O*>"));
    return all;
}

/// (row_max + c, row_sum exp(-c)) is the same P.
/// Why     only exp(s - row_max) / row_sum enters a gradient, however the two share it.
/// Domain  a c of -2 .. 2 per row, on top of what the case does.
/// Bound   twice the bound for statistics that are off by the rounding of both pairs.
/// Kills   NSG-14 x17 x22.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero K, V and dO element.
Verdict statistics_shift(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedGradientNumbers in(parts);
    SelectedParts shifted = parts;
    Random random(mix(spec.seed));
    const double unit = std::max(kFp32, ref::accumulator_roundoff(context.rounding, parts.dtype));
    double error = 0;
    for (std::size_t row = 0; row < parts.row_max.size(); ++row) {
        if (!in.sees_keys(row)) continue;
        const float moved =
            static_cast<float>(in.row_max[row] + static_cast<double>(random.between(-8, 8)) / 4);
        const double really = static_cast<double>(moved) - in.row_max[row];
        shifted.row_max[row] = moved;
        shifted.row_sum[row] = static_cast<float>(in.row_sum[row] * std::exp(-really));
        // The rounding of the new sum; s - row_max, row_max and log(row_sum) grow by |c| each.
        error = std::max(error, 2 * kFp32 + 9 * unit * std::fabs(really));
    }
    const SelectedRun left(parts, context), right(shifted, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_with_errors(in, context.rounding, {}, error);
    return verdict_on_equal_runs(spec, left, right, expected, expected,
                                 "row_max + c and row_sum exp(-c)");
}

/// A row sum that is twice as large halves every gradient.
/// Why     P is what the statistics say, not what the logits would give: contract decision 3.
/// Domain  factors 1/2, 2 and 4 for all rows at once.
/// Bound   the bounds of both runs, that of the first divided by the factor.
/// Kills   NSG-x18 x21 x22 x34.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero Q, V and dO element.
Verdict statistics_used(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedGradientNumbers in(parts);
    SelectedParts changed = parts;
    const double factor = Random(mix(spec.seed)).pick<double>({0.5, 2, 4});
    for (std::size_t row = 0; row < changed.row_sum.size(); ++row)
        if (in.sees_keys(row)) changed.row_sum[row] *= static_cast<float>(factor);
    const SelectedRun left(parts, context), right(changed, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding),
                          changed_expected = expected_of(changed, context.rounding);
    Verdict all;
    for (const std::string& name : left.output_names())
        join(all, verdict_on_runs(spec, left, name, times(left.values(name), 1 / factor),
                                  right.values(name),
                                  sum_of(times(allowance(tensor_of(expected, name)), 1 / factor),
                                         allowance(tensor_of(changed_expected, name))),
                                  fmt::format("row_sum times {}", factor)));
    return all;
}

/// delta comes from the given output: O + d moves dS_ij by -P_ij <dO_i, d_i>, and dV does not look
/// at O.
/// Why     contract decision 3.
/// Domain  d of up to 1/2 in every element.
/// Bound   that of the expected values for the changed output; the bits of dV.
/// Kills   NSG-x17 x18 x19 x20 x26 x34.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero K and dO element.
Verdict output_used(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    SelectedParts changed = parts;
    Random random(mix(spec.seed));
    for (std::uint32_t& element : changed.output)
        element = ref::encode(parts.dtype, ref::decode(parts.dtype, element) +
                                               static_cast<double>(random.between(-8, 8)) / 16);
    const SelectedRun left(parts, context), right(changed, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    Verdict all =
        verdict_on_equal_bits(spec, left, right, "another given output",
                              [](const std::string& name, std::size_t) { return name == "dv"; });
    if (all.failed()) return all;
    return verdict_on_values(spec, right.call, right.result,
                             expected_of(changed, context.rounding));
}

}  // namespace

void add_selected_gradient_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list, true);
    list.push_back({"one_row", "dO in one row reaches that row and the keys it sees", one_row,
                    with_moderate_data, moderate});
    list.push_back(
        {"value_sum", "sum_j dV_j = sum_i dO_i", value_sum, with_moderate_data, moderate});
    list.push_back({"key_sum", "sum_j dK_j = scale sum_i <dO_i, O*_i - O_i> q_i", key_sum,
                    with_moderate_data, moderate});
    list.push_back(
        {"euler", "<dQ, Q> = <dK, K>, <dV, V> = <dO, O*>", euler, with_moderate_data, moderate});
    list.push_back({"statistics_shift", "(row_max + c, row_sum exp(-c)) is the same P",
                    statistics_shift, with_moderate_data, moderate});
    list.push_back({"statistics_used", "P follows the given row_sum", statistics_used,
                    with_moderate_data, moderate});
    list.push_back({"output_used", "delta follows the given output, dV does not look at it",
                    output_used, with_moderate_data, moderate});
    add_selected_adjoint_relations(list);
}

}  // namespace attncheck::properties
