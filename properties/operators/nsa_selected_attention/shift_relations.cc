// Relations between runs of selected attention whose queries, keys or values are scaled or shifted,
// and the statistics of one run. Scaling in both directions, the others for the forward alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/operators/nsa_selected_attention/runs.h"

namespace attncheck::properties {
namespace {

/// (2^a Q, 2^-a K) has the logits of (Q, K).
/// Why     every product q k is the same number; away from overflow and underflow rounding does not
/// look at exponents. dq goes with K, dk with Q.
/// Domain  moderate data, numbers below 2^-7 set to zero.
/// Demand  the same bits; dq and dk scaled, where they are normal numbers.
/// Kills   in the gradient NSG-05 06 x03 x12 x13 x35; in the forward no mutant of the arithmetic,
/// only NSF-x58 x59 x60 (memory, reuse of a buffer), which others kill as well.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    if (!rounds_alike_at_every_scale(parts, context)) return inapplicable();
    drop_tiny(parts.dtype, parts.query);
    drop_tiny(parts.dtype, parts.key);
    SelectedParts scaled = parts;
    const int exponent = Random(mix(spec.seed)).pick<int>({-3, -1, 1, 3});
    if (!scale_exactly(parts.dtype, scaled.query, exponent) ||
        !scale_exactly(parts.dtype, scaled.key, -exponent))
        return inapplicable();
    const SelectedRun left(parts, context), right(scaled, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::string relation =
        fmt::format("query times 2^{}, key times 2^{}", exponent, -exponent);
    Verdict all = verdict_on_equal_bits(
        spec, left, right, relation,
        [](const std::string& name, std::size_t) { return name != "dq" && name != "dk"; });
    if (!parts.gradient) return all;
    join(all, verdict_on_scaled(spec, left, right, "dq", -exponent, relation));
    join(all, verdict_on_scaled(spec, left, right, "dk", exponent, relation));
    return all;
}

/// Twice V gives twice O. In the gradient (2 V, 2 O, dO / 2) has the dS of (V, O, dO), and half its
/// dV.
/// Why     O is linear in V; dP = <dO, V> and delta = <dO, O> stay the same numbers.
/// Domain  moderate data, output gradients below 2^-7 set to zero.
/// Demand  the same bits: statistics, dq and dk as they were, O doubled and dv halved where they
///         are normal numbers.
/// Kills   NSF-x16 x17 x42 x46, NSG-x14 x16 x35 x36.
Verdict value_scale(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    if (!rounds_alike_at_every_scale(parts, context)) return inapplicable();
    drop_tiny(parts.dtype, parts.output_grad);
    SelectedParts scaled = parts;
    if (!scale_exactly(parts.dtype, scaled.value, 1) ||
        !scale_exactly(parts.dtype, scaled.output, 1) ||
        !scale_exactly(parts.dtype, scaled.output_grad, -1))
        return inapplicable();
    const SelectedRun left(parts, context), right(scaled, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::string relation =
        parts.gradient ? "value and output doubled, output gradient halved" : "value doubled";
    const char* follows = parts.gradient ? "dv" : "attention_out";
    Verdict all = verdict_on_equal_bits(
        spec, left, right, relation,
        [&](const std::string& name, std::size_t) { return name != follows; });
    join(all, verdict_on_scaled(spec, left, right, follows, parts.gradient ? -1 : 1, relation));
    return all;
}

/// A constant added to all values is added to the output.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1.
/// Domain  values rounded to multiples of 1/8, c a whole number per key/value head and channel: V +
/// c is stored exactly.
/// Bound   the bounds of both runs added; the statistics do not look at V and keep their bits.
/// Kills   NSF-20 x02 x10 x13 x40 x41 x63.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero logit.
Verdict value_shift(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    quantise(parts.dtype, parts.value);
    const ref::SelectedAttentionShape& s = parts.shape;
    const std::int64_t width = s.value_dim, group = s.dense().group();
    std::vector<double> constants(static_cast<std::size_t>(s.kv_heads * width));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-3, 3));
    SelectedParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.value, [&](double value, std::size_t k) {
            return value + constants[k % constants.size()];
        }))
        return inapplicable();
    const SelectedRun left(parts, context), right(shifted, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::vector<char> with_keys = rows_that_see(
        parts, std::vector<char>(static_cast<std::size_t>(s.total_keys * s.kv_heads), 1));
    std::vector<double> moved = left.values("attention_out");
    for (std::size_t k = 0; k < moved.size(); ++k) {
        const auto row = k / static_cast<std::size_t>(width);
        const auto kv_head = static_cast<std::int64_t>(row) % s.query_heads / group;
        if (with_keys[row])
            moved[k] += constants[static_cast<std::size_t>(kv_head * width) +
                                  k % static_cast<std::size_t>(width)];
    }
    Verdict all = verdict_on_equal_bits(
        spec, left, right, "a constant added to all values",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
    const auto bound_of = [&](const SelectedParts& of) {
        return allowance(tensor_of(expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_runs(spec, left, "attention_out", moved, right.values("attention_out"),
                              sum_of(bound_of(parts), bound_of(shifted)),
                              "a constant added to all values"));
    return all;
}

/// A vector c added to all keys moves the logits of a row by scale <q, c> and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number.
/// Domain  keys rounded to multiples of 1/8, c whole numbers per key/value head: K + c is stored
/// exactly.
/// Bound   the bounds of both runs added; softmax_max moves by scale <q, c>.
/// Kills   NSF-14 x09 x12 x13 x14 x55 x56.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero query element.
Verdict key_shift(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    quantise(parts.dtype, parts.key);
    const ref::SelectedAttentionShape& s = parts.shape;
    std::vector<double> vectors(static_cast<std::size_t>(s.kv_heads * s.head_dim));
    Random random(mix(spec.seed));
    for (double& c : vectors) c = static_cast<double>(random.between(-2, 2));
    SelectedParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.key, [&](double key, std::size_t k) {
            return key + vectors[k % vectors.size()];
        }))
        return inapplicable();
    const SelectedRun left(parts, context), right(shifted, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding),
                          shifted_expected = expected_of(shifted, context.rounding);
    const std::vector<double> query = parts.values(parts.query);
    Verdict all;
    for (const std::string& name : left.output_names()) {
        std::vector<double> moved = left.values(name);
        const std::size_t row =
            moved.size() / static_cast<std::size_t>(s.total_queries * s.query_heads);
        for (std::size_t k = 0; k < moved.size() && name == "softmax_max"; ++k) {
            if (moved[k] <= ref::kEmptyRowMax) continue;
            const std::size_t at = k / row;
            const auto n = static_cast<std::int64_t>(at) % s.query_heads;
            if (static_cast<std::int64_t>(at) / s.query_heads >=
                std::accumulate(s.query_lengths.begin(), s.query_lengths.end(), std::int64_t{0}))
                continue;  // beyond the last sequence: 0 stays 0
            moved[k] +=
                parts.narrowed_scale() *
                ref::inner_product(query.data() + at * static_cast<std::size_t>(s.head_dim),
                                   vectors.data() + n / s.dense().group() * s.head_dim, s.head_dim);
        }
        join(all, verdict_on_runs(spec, left, name, moved, right.values(name),
                                  sum_of(allowance(tensor_of(expected, name)),
                                         allowance(tensor_of(shifted_expected, name))),
                                  "a vector added to all keys"));
    }
    return all;
}

/// The eight elements of a statistic are one number, and the two statistics belong together.
/// Why     contract decision 3. row_max + log(row_sum) is the logarithm of sum exp(logit), whatever
/// maximum was subtracted, and its error is smaller than those of both: the error of the maximum
/// cancels. A sum with exp(0) = 1 in it is at least 1, at most the number of keys.
/// Bound   that of the LSE for the pair; 2^-20 for the sum against 1; the bits for the eight
/// elements.
/// Kills   NSF-14 16 x01 x12 x14 x30 x31 x32 x55.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero logit.
Verdict statistics(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
        const auto& bits = run.bits(name);
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (bits[k] != bits[k / kLanes * kLanes])
                return Verdict::fail(
                    std::string(name) + " is not the same 8 times",
                    fmt::format("{}  {:.9g}  first of the eight {:.9g}",
                                place_of(spec, run.call, name, k),
                                ref::decode(ref::Dtype::fp32, bits[k]),
                                ref::decode(ref::Dtype::fp32, bits[k / kLanes * kLanes])));
    }
    const auto query = parts.values(parts.query), key = parts.values(parts.key),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.narrowed_scale(), 1};
    const auto expected = ref::expected_attention(parts.shape.dense(), parts.columns(), in,
                                                  parts.dtype, context.rounding);
    const std::vector<double> row_max = run.values("softmax_max"),
                              row_sum = run.values("softmax_sum");
    const std::vector<double> allowed = allowance(expected.lse);
    std::vector<double> lse(row_max.size()), exact(lse.size()), bound(lse.size()), low(lse.size());
    for (std::size_t k = 0; k < lse.size(); ++k) {
        const std::size_t row = k / kLanes;
        const bool judged = std::isfinite(allowed[row]) && expected.row_sum.value[row] > 0;
        lse[k] = judged ? row_max[k] + std::log(row_sum[k]) : 0;
        exact[k] = judged ? expected.lse.value[row] : 0;
        bound[k] = judged ? allowed[row] : 0;
        low[k] = judged ? std::min(row_sum[k], 1.0) : 1;
    }
    Verdict all = verdict_on_runs(spec, run, "softmax_max", lse, exact, bound,
                                  "row_max + log(row_sum) against the exact LSE");
    join(all, verdict_on_runs(spec, run, "softmax_sum", low, std::vector<double>(low.size(), 1),
                              std::vector<double>(low.size(), 0x1p-20), "row_sum at least 1"));
    return all;
}

}  // namespace

void add_selected_scale_relations(std::vector<Property>& list) {
    list.push_back({"power_of_two", "(2^a Q, 2^-a K) has the same logits, to the bit", power_of_two,
                    with_moderate_data, moderate});
    list.push_back({"value_scale", "twice V gives twice O, to the bit", value_scale,
                    with_moderate_data, moderate});
}

void add_selected_forward_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list);
    list.push_back({"value_shift", "V + c gives O + c", value_shift, with_moderate_data, moderate});
    list.push_back({"key_shift", "K + c moves row_max by scale <q, c> and nothing else", key_shift,
                    with_moderate_data, moderate});
    list.push_back({"statistics", "eight equal elements; row_max + log(row_sum) is the LSE",
                    statistics, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
