// Relations between problems of flash attention whose queries, keys, values or biases are scaled or
// shifted, and the statistics of one problem. Scaling in both directions, the others for the
// forward alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/operators/flash_attention/fields.h"
#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr std::size_t kLanes = 8;  ///< copies of every statistic

/// left * 2^exponent == right for one output.
Verdict verdict_on_scaled(const FlashParts& parts, const FlashRun& left, const FlashRun& right,
                          const std::string& name, int exponent, const std::string& relation) {
    return verdict_on_powers(name, left.output(name).dtype, left.values(name), right.values(name),
                             exponent, relation,
                             [&](std::size_t k) { return packed_place(parts, name, k); });
}

/// (2^a Q, 2^-a K) has the logits of (Q, K).
/// Why     every product q k is the same number; away from overflow and underflow rounding does
/// not look at exponents. dq goes with K, dk with Q.
/// Domain  moderate data, numbers below 2^-7 set to zero; ropes follow.
/// Demand  the same bits; dq and dk scaled, where they are normal numbers.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    for (auto* bits : {&parts.query, &parts.query_rope, &parts.key, &parts.key_rope})
        drop_tiny(parts.dtype, *bits);
    FlashParts scaled = parts;
    const int exponent = Random(mix(spec.seed)).pick<int>({-3, -1, 1, 3});
    for (auto* bits : {&scaled.query, &scaled.query_rope})
        if (!scale_exactly(parts.dtype, *bits, exponent)) return inapplicable();
    for (auto* bits : {&scaled.key, &scaled.key_rope})
        if (!scale_exactly(parts.dtype, *bits, -exponent)) return inapplicable();
    const FlashRun left(parts, context), right(scaled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::string relation =
        fmt::format("query times 2^{}, key times 2^{}", exponent, -exponent);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        const int moved = name.starts_with("dq")   ? -exponent
                          : name.starts_with("dk") ? exponent
                                                   : 0;
        if (moved != 0) join(all, verdict_on_scaled(parts, left, right, name, moved, relation));
    }
    join(all, verdict_on_equal_bits(parts, left, right, relation,
                                    [](const std::string& name, std::size_t) {
                                        return !name.starts_with("dq") && !name.starts_with("dk");
                                    }));
    return all;
}

/// Twice V gives twice O, with any drop mask. In the gradient (2 V, 2 O, dO / 2) has the dS of
/// (V, O, dO), and half its dV.
/// Why     O is linear in V; dP = <dO, V> and delta = <dO, O> stay the same numbers.
/// Domain  moderate data, output gradients below 2^-7 set to zero.
/// Demand  the same bits: statistics, dq and dk as they were, O doubled and dv halved where they
/// are normal numbers.
/// Kills   mutants FA-18, FA-33, FA-66, FAG-03.
Verdict value_scale(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    drop_tiny(parts.dtype, parts.output_grad);
    FlashParts scaled = parts;
    if (!scale_exactly(parts.dtype, scaled.value, 1) ||
        !scale_exactly(parts.dtype, scaled.output, 1) ||
        !scale_exactly(parts.dtype, scaled.output_grad, -1))
        return inapplicable();
    const FlashRun left(parts, context), right(scaled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::string relation =
        parts.gradient ? "value and output doubled, output gradient halved" : "value doubled";
    const char* follows = parts.gradient ? "dv" : "attention_out";
    Verdict all = verdict_on_equal_bits(
        parts, left, right, relation,
        [&](const std::string& name, std::size_t) { return name != follows; });
    join(all, verdict_on_scaled(parts, left, right, follows, parts.gradient ? -1 : 1, relation));
    return all;
}

/// Additive in V, with any drop mask.
/// Why     O = sum_j P_ij g_ij v_j, and P does not look at V.
/// Domain  values rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs; the statistics keep their bits.
/// Kills   mutants FA-13, FA-15, FA-19, FA-35, FA-38, FA-44.
Verdict value_linearity(const Spec& spec, PropertyContext& context) {
    FlashParts whole = flash_parts(spec);
    quantise(whole.dtype, whole.value);
    FlashParts first = whole, second = whole;
    Random random(mix(spec.seed));
    std::vector<double> part(whole.value.size());
    for (double& value : part) value = static_cast<double>(random.between(-3, 3));
    if (!change_exactly(whole.dtype, first.value, [&](double, std::size_t k) { return part[k]; }) ||
        !change_exactly(whole.dtype, second.value,
                        [&](double value, std::size_t k) { return value - part[k]; }))
        return inapplicable();
    const FlashRun a(first, context), b(second, context), sum(whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    const auto is_statistic = [](const std::string& name, std::size_t) {
        return name != "attention_out";
    };
    Verdict all = verdict_on_equal_bits(whole, a, sum, "other values", is_statistic);
    const auto bound_of = [&](const FlashParts& of) {
        return allowance(tensor_of(packed_expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_flash(whole, "attention_out",
                               sum_of(a.values("attention_out"), b.values("attention_out")),
                               sum.values("attention_out"),
                               sum_of(sum_of(bound_of(first), bound_of(second)), bound_of(whole)),
                               "values split in two"));
    return all;
}

/// Rows that see a key, [T1,N1].
std::vector<char> rows_not_empty(const FlashParts& parts) {
    return rows_that_see(
        parts, std::vector<char>(
                   static_cast<std::size_t>(parts.shape.total_keys * parts.shape.kv_heads), 1));
}

/// A constant added to all values is added to the output.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1; not with dropout.
/// Domain  values rounded to multiples of 1/8, c a whole number per key/value head and channel: V
/// + c is stored exactly.
/// Bound   the bounds of both runs; the statistics do not look at V and keep their bits.
/// Kills   mutants FA-15, FA-18, FA-19, FA-33, FA-38, FA-52.
Verdict value_shift(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    quantise(parts.dtype, parts.value);
    const ref::FlashAttentionShape& s = parts.shape;
    const Int width = s.value_dim, group = s.query_heads / s.kv_heads;
    std::vector<double> constants(static_cast<std::size_t>(s.kv_heads * width));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-3, 3));
    FlashParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.value, [&](double value, std::size_t k) {
            return value + constants[k % constants.size()];
        }))
        return inapplicable();
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::vector<char> with_keys = rows_not_empty(parts);
    std::vector<double> moved = left.values("attention_out");
    for (std::size_t k = 0; k < moved.size(); ++k) {
        const auto row = k / static_cast<std::size_t>(width);
        const Int kv_head = static_cast<Int>(row) % s.query_heads / group;
        if (with_keys[row])
            moved[k] += constants[static_cast<std::size_t>(kv_head * width) +
                                  k % static_cast<std::size_t>(width)];
    }
    Verdict all = verdict_on_equal_bits(
        parts, left, right, "a constant added to all values",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
    const auto bound_of = [&](const FlashParts& of) {
        return allowance(tensor_of(packed_expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_flash(parts, "attention_out", moved, right.values("attention_out"),
                               sum_of(bound_of(parts), bound_of(shifted)),
                               "a constant added to all values"));
    return all;
}

/// A constant added to the bias of a row moves its maximum and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number; behind the
/// scale the maximum moves by c, before it by scale c.
/// Domain  external biases written element by element, as multiples of 1/8; c a whole number per
/// row and head.
/// Bound   the bounds of both runs.
/// Kills   mutants FA-13, FA-15, FA-32, FA-42, FA-44, FA-45.
Verdict bias_shift(const Spec& spec, PropertyContext& context) {
    std::optional<FlashParts> plain = with_plain_bias(flash_parts(spec));
    if (!plain || !is_legal(*plain)) return inapplicable();
    FlashParts& parts = *plain;
    quantise(parts.dtype, parts.pse);
    parts.shape.bias.values = decode_all(parts.dtype, parts.pse);
    const ref::FlashAttentionShape& s = parts.shape;
    FlashParts shifted = parts;
    std::vector<double> constants(static_cast<std::size_t>(s.total_queries * s.query_heads));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-8, 8));
    const auto first_query = ref::first_rows(s.query_lengths);
    std::size_t at = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int n = 0; n < s.query_heads; ++n)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j, ++at)
                    shifted.pse[at] = ref::encode(
                        parts.dtype,
                        s.bias.values[at] + constants[static_cast<std::size_t>(
                                                (first_query[b] + i) * s.query_heads + n)]);
    shifted.shape.bias.values = decode_all(parts.dtype, shifted.pse);
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          shifted_expected = packed_expected_of(shifted, context.rounding);
    const std::vector<char> with_keys = rows_not_empty(parts);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        std::vector<double> moved = left.values(name);
        for (std::size_t k = 0; k < moved.size() && name == "softmax_max"; ++k)
            if (with_keys[k / kLanes])
                moved[k] += (s.bias.type == 1 ? s.scale : 1) * constants[k / kLanes];
        join(all, verdict_on_flash(parts, name, moved, right.values(name),
                                   sum_of(allowance(tensor_of(expected, name)),
                                          allowance(tensor_of(shifted_expected, name))),
                                   "a constant added to the bias of every row"));
    }
    return all;
}

void with_external_bias(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (has_external_bias(spec)) return;
    const Int mask = spec.numbers[kFaMask];
    with_mask_and_bias(spec, random);
    if (mask == 0) without_mask(spec);
}

/// The statistics are those before dropout.
/// Why     contract decision 3.
/// Domain  drop masks, any data.
/// Demand  the bits of the problem without dropout.
/// Kills   mutants FA-x77.
Verdict dropout_statistics(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts without = parts;
    without.shape.dropout.present = false;
    without.shape.dropout.keep_prob = without.keep_prob = 1;
    without.shape.dropout.bytes.clear();
    const FlashRun left(parts, context), right(without, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    return verdict_on_equal_bits(
        parts, left, right, "without dropout",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
}

/// The eight elements of a statistic are one number, and the two statistics belong together.
/// Why     contract decision 3. row_max + log(row_sum) is the logarithm of sum exp(logit),
/// whatever maximum was subtracted, and its error is smaller than those of both: the error of the
/// maximum cancels. A sum with exp(0) = 1 in it is at least 1, up to the rounding of the maximum.
/// Bound that of the LSE for the pair; 2^-20 and 4 u |row_max| for the sum against 1; the bits
/// for the eight elements.
/// Kills   mutants FA-05, FA-20, FA-22, FA-27, FA-47, FA-65.
Verdict statistics(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
        const auto& bits = run.bits(name);
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (bits[k] != bits[k / kLanes * kLanes])
                return Verdict::fail(
                    std::string(name) + " is not the same 8 times",
                    fmt::format("{}  {:.9g}  first of the eight {:.9g}",
                                packed_place(parts, name, k),
                                ref::decode(ref::Dtype::fp32, bits[k]),
                                ref::decode(ref::Dtype::fp32, bits[k / kLanes * kLanes])));
    }
    const auto query = parts.query_values(), key = parts.key_values(),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.shape.scale,
                                          parts.shape.dropout.keep_prob};
    const auto expected = ref::expected_attention(
        parts.shape.dense(), ref::flash_columns(parts.shape), in, parts.dtype, context.rounding);
    const std::vector<double> row_max = run.values("softmax_max"),
                              row_sum = run.values("softmax_sum");
    const std::vector<double> allowed = allowance(expected.lse);
    std::vector<double> lse(row_max.size()), exact(lse.size()), bound(lse.size()), low(lse.size()),
        slack(lse.size());
    for (std::size_t k = 0; k < lse.size(); ++k) {
        const std::size_t row = k / kLanes;
        const bool judged = std::isfinite(allowed[row]) && expected.row_sum.value[row] > 0;
        lse[k] = judged ? row_max[k] + std::log(row_sum[k]) : 0;
        exact[k] = judged ? expected.lse.value[row] : 0;
        bound[k] = judged ? allowed[row] : 0;
        low[k] = judged ? std::min(row_sum[k], 1.0) : 1;
        slack[k] = judged ? 0x1p-20 + 4 * ref::accumulator_roundoff(context.rounding, parts.dtype) *
                                          std::fabs(row_max[k])
                          : 0;
    }
    Verdict all = verdict_on_flash(parts, "softmax_max", lse, exact, bound,
                                   "row_max + log(row_sum) against the exact LSE");
    join(all, verdict_on_flash(parts, "softmax_sum", low, std::vector<double>(low.size(), 1), slack,
                               "row_sum at least 1"));
    return all;
}

}  // namespace

void add_flash_scale_relations(std::vector<Property>& list) {
    list.push_back({"power_of_two", "(2^a Q, 2^-a K) has the same logits, to the bit", power_of_two,
                    with_moderate_data, moderate});
    list.push_back({"value_scale", "twice V gives twice O, to the bit", value_scale,
                    with_moderate_data, moderate});
}

void add_flash_forward_relations(std::vector<Property>& list) {
    add_flash_shared_relations(list);
    list.push_back({"value_linearity", "additive in V, with any drop mask", value_linearity,
                    with_moderate_data, moderate});
    list.push_back({"value_shift", "V + c gives O + c", value_shift,
                    [](Spec& spec, Random& random) {
                        with_moderate_data(spec, random);
                        without_dropout(spec);
                    },
                    [](const Spec& spec) { return moderate(spec) && spec.numbers[kFaDrop] == 0; }});
    list.push_back({"bias_shift", "a constant in the bias of a row moves its maximum alone",
                    bias_shift, with_external_bias,
                    [](const Spec& spec) { return moderate(spec) && has_external_bias(spec); }});
    list.push_back({"dropout_statistics", "statistics are those before dropout", dropout_statistics,
                    with_drops, [](const Spec& spec) { return spec.numbers[kFaDrop] != 0; }});
    list.push_back({"statistics", "eight equal elements; row_max + log(row_sum) is the LSE",
                    statistics, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
