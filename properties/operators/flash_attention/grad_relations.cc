// Relations of the gradient of flash attention: which output gradient reaches which element,
// identities that tie dQ, dK and dV to each other and to the forward, and what the given statistics
// and output are used for. Most need no oracle of the backward: only its bounds. Legend as in
// flash_attention_grad_numbers.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/laws/attention_laws.h"
#include "properties/operators/flash_attention/grad_numbers.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr double kFp32 = 0x1p-24;

constexpr const char* kGradients[] = {"dq", "dk", "dv"};

/// An output gradient that is zero but for one row reaches that row's dQ and the keys it sees,
/// for dV those that it keeps.
/// Why     every term of dQ_i, and every term that row i adds to dK and dV, has dO_i as a factor.
/// Domain  moderate data; dO is kept in one (query, head), any given output and statistics.
/// Demand  exact zeros elsewhere; the row's dQ keeps the bits that it has with the whole dO.
/// Kills   mutants FAG-18.
Verdict one_row(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    if (s.total_queries == 0) return inapplicable();
    Random random(mix(spec.seed));
    const Int t = random.between(0, s.total_queries - 1),
              head = random.between(0, s.query_heads - 1);
    const auto row = static_cast<std::size_t>(t * s.query_heads + head);
    FlashParts single = parts;
    for (std::size_t k = 0; k < single.output_grad.size(); ++k)
        if (k / static_cast<std::size_t>(s.value_dim) != row) single.output_grad[k] = 0;
    const FlashRun whole(parts, context), alone(single, context);
    if (auto trouble = first_trouble({&whole, &alone})) return *trouble;
    const std::string relation =
        fmt::format("with the output gradient of row {}, head {} alone", t, head);
    const auto row_of = [&](const std::string& name, std::size_t k) {
        const Int rows =
            is_of_keys(name) ? s.total_keys * s.kv_heads : s.total_queries * s.query_heads;
        return k / (whole.bits(name).size() / static_cast<std::size_t>(rows));
    };
    Verdict verdict = verdict_on_equal_bits(parts, whole, alone, relation,
                                            [&](const std::string& name, std::size_t k) {
                                                return !is_of_keys(name) && row_of(name, k) == row;
                                            });
    if (verdict.failed()) return verdict;
    const std::vector<char> seen = keys_seen_by(parts, t, head, Drops::counted),
                            kept = keys_seen_by(parts, t, head, Drops::left_out);
    for (const auto& [name, dtype, bits] : alone.outputs) {
        const std::vector<double> values = alone.values(name);
        for (std::size_t k = 0; k < values.size(); ++k) {
            const std::size_t at = row_of(name, k);
            const bool reached = !is_of_keys(name) ? at == row : name == "dv" ? kept[at] : seen[at];
            if (!reached && values[k] != 0)
                return Verdict::fail(name + " of an unreached row is not 0",
                                     fmt::format("{}: {}  expected 0  got {:.9g}", relation,
                                                 packed_place(parts, name, k), values[k]));
        }
    }
    return {};
}

/// Adds the sum over the keys of a slot, channel by channel, to the left side.
void add_key_sums(const FlashParts& parts, const std::vector<double>& grad,
                  const std::vector<double>& bound, std::size_t width, Identity& identity) {
    for_each_slot(parts, true, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            identity.left[slot * width + d] += grad[at * width + d];
            identity.allowed[slot * width + d] += bound[at * width + d];
            identity.size[slot * width + d] += std::fabs(grad[at * width + d]);
        }
    });
}

/// Over a sequence and a key/value head, sum_j dV_j = sum_i (sum_j P_ij g_ij) dO_i: without
/// dropout, sum_i f_i dO_i.
/// Why     exchange of the sums.
/// Domain  any statistics and drop mask.
/// Bound   the bounds of dV added.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-40.
Verdict value_sum(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashGradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const std::size_t width = in.value_dim();
    Identity identity = identity_per_slot(parts, width);
    add_key_sums(parts, run.values("dv"), allowance(tensor_of(expected, "dv")), width, identity);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            const double grad = in.kept[at] * in.output_grad[at * width + d];
            identity.right[slot * width + d] += grad;
            identity.size[slot * width + d] += std::fabs(grad);
        }
    });
    return identity.verdict("dv", "sum_j dV_j = sum_ij P_ij g_ij dO_i");
}

/// Over a sequence and a key/value head, sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i.
/// Why     sum_j dS_ij = f_i <dO_i, O*_i> - f_i <dO_i, O_i>: with the exact output it is 0, since
/// shifting all keys changes nothing; what is left is what was done to O.
/// Domain  any statistics, given output, bias, rope and drop mask.
/// Bound   the bounds of dK added.
/// Kills   mutants FAG-08, FAG-10, FAG-40.
Verdict key_sum(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashGradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const std::size_t width = in.head_dim(), value_width = in.value_dim();
    Identity identity = identity_per_slot(parts, width);
    add_key_sums(parts, wide_values(parts, run, "dk"), allowance(tensor_of(expected, "dk")), width,
                 identity);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        const double sum =
            in.factor[at] * (dot_of(in.output_grad, in.exact_output, at, value_width) -
                             dot_of(in.output_grad, in.output, at, value_width));
        const double size =
            in.factor[at] * (size_of(in.output_grad, in.exact_output, at, value_width) +
                             size_of(in.output_grad, in.output, at, value_width));
        for (std::size_t d = 0; d < width; ++d) {
            const double q = parts.shape.scale * in.query[at * width + d];
            identity.right[slot * width + d] += sum * q;
            identity.size[slot * width + d] += size * std::fabs(q);
        }
    });
    return identity.verdict("dk", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i");
}

/// Adds sum_row <grad, weights> to one side of an identity, with the bounds it brings.
void add_products(const FlashParts& parts, bool of_keys, const std::vector<double>& grad,
                  const std::vector<double>& bound, const std::vector<double>& weights,
                  std::vector<double>& side, Identity& identity) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int rows = of_keys ? s.total_keys * s.kv_heads : s.total_queries * s.query_heads;
    if (rows == 0) return;
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

/// Over a sequence and a key/value head, <dQ, Q> + <dQr, Qr> = <dK, K> + <dKr, Kr> and <dV, V> =
/// sum_i f_i <dO_i, O*_i>.
/// Why     Euler: both sides of the first are scale sum_ij dS_ij <q_i, k_j>, whatever the bias;
/// both of the second sum_ij P_ij g_ij <dO_i, v_j>.
/// Domain  any statistics, given output, bias, rope and drop mask.
/// Bound   sum of the bounds times the sizes they meet.
/// Kills   mutants FAG-07, FAG-08, FAG-10, FAG-13, FAG-40.
Verdict euler(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashGradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const auto bound = [&](const char* name) { return allowance(tensor_of(expected, name)); };
    const auto grad = [&](const char* name) { return wide_values(parts, run, name); };
    Identity scores = identity_per_slot(parts), values = identity_per_slot(parts);
    add_products(parts, false, grad("dq"), bound("dq"), in.query, scores.left, scores);
    add_products(parts, true, grad("dk"), bound("dk"), in.key, scores.right, scores);
    add_products(parts, true, grad("dv"), bound("dv"), in.value, values.left, values);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        values.right[slot] +=
            in.factor[at] * dot_of(in.output_grad, in.exact_output, at, in.value_dim());
        values.size[slot] +=
            in.factor[at] * size_of(in.output_grad, in.exact_output, at, in.value_dim());
    });
    Verdict all = scores.verdict("dq and dk", "<dQ, Q> = <dK, K>");
    join(all, values.verdict("dv", "<dV, V> = sum f <dO, O*>"));
    return all;
}

/// (row_max + c, row_sum exp(-c)) is the same P.
/// Why     only exp(s - row_max) / row_sum enters a gradient, however the two share it.
/// Domain  a c of -2 .. 2 per row, on top of what the case does.
/// Bound   twice the bound for statistics that are off by the rounding of both pairs.
/// Kills   mutants FAG-03, FAG-08, FAG-19.
Verdict statistics_shift(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashGradientNumbers in(parts);
    FlashParts shifted = parts;
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
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding, {}, error);
    Verdict all;
    for (const char* name : kGradients)
        join(all, verdict_on_wide(parts, name, wide_values(parts, left, name),
                                  wide_values(parts, right, name),
                                  times(allowance(tensor_of(expected, name)), 2),
                                  "row_max + c and row_sum exp(-c)"));
    return all;
}

/// A row sum that is twice as large halves every gradient.
/// Why     P is what the statistics say, not what the logits would give: contract decision 3.
/// Domain  factors 1/2, 2 and 4 for all rows at once.
/// Bound   the bounds of both runs, that of the first divided by the factor.
/// Kills   mutants FAG-18, FAG-19.
Verdict statistics_used(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashGradientNumbers in(parts);
    FlashParts changed = parts;
    const double factor = Random(mix(spec.seed)).pick<double>({0.5, 2, 4});
    for (std::size_t row = 0; row < changed.row_sum.size(); ++row)
        if (in.sees_keys(row)) changed.row_sum[row] *= static_cast<float>(factor);
    const FlashRun left(parts, context), right(changed, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          changed_expected = packed_expected_of(changed, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs)
        join(all,
             verdict_on_flash(parts, name, times(left.values(name), 1 / factor), right.values(name),
                              sum_of(times(allowance(tensor_of(expected, name)), 1 / factor),
                                     allowance(tensor_of(changed_expected, name))),
                              fmt::format("row_sum times {}", factor)));
    return all;
}

/// delta comes from the given output: O + d moves dS_ij by -P_ij <dO_i, d_i>, and dV does not
/// look at O.
/// Why     contract decision 3.
/// Domain  d of up to 1/2 in every element.
/// Bound   that of the expected values for the changed output; the bits of dV.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-13, FAG-18, FAG-40.
Verdict output_used(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts changed = parts;
    Random random(mix(spec.seed));
    for (std::uint32_t& element : changed.output)
        element = ref::encode(parts.dtype, ref::decode(parts.dtype, element) +
                                               static_cast<double>(random.between(-8, 8)) / 16);
    const FlashRun left(parts, context), right(changed, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "another given output";
    Verdict all =
        verdict_on_equal_bits(parts, left, right, kRelation,
                              [](const std::string& name, std::size_t) { return name == "dv"; });
    join(all,
         verdict_on_expected(changed, right, expected_wide(changed, context.rounding), kRelation));
    return all;
}

}  // namespace

void add_flash_gradient_relations(std::vector<Property>& list) {
    add_flash_shared_relations(list, true);
    list.push_back({"one_row", "dO in one row reaches that row and the keys it sees", one_row,
                    with_moderate_data, moderate});
    list.push_back({"value_sum", "sum_j dV_j = sum_ij P_ij g_ij dO_i", value_sum,
                    with_moderate_data, moderate});
    list.push_back({"key_sum", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i", key_sum,
                    with_moderate_data, moderate});
    list.push_back({"euler", "<dQ, Q> = <dK, K>, <dV, V> = sum f <dO, O*>", euler,
                    with_moderate_data, moderate});
    list.push_back({"statistics_shift", "(row_max + c, row_sum exp(-c)) is the same P",
                    statistics_shift, with_moderate_data, moderate});
    list.push_back({"statistics_used", "P follows the given row_sum", statistics_used,
                    with_moderate_data, moderate});
    list.push_back({"output_used", "delta follows the given output, dV does not look at it",
                    output_used, with_moderate_data, moderate});
    add_flash_adjoint_relations(list);
}

}  // namespace attncheck::properties
