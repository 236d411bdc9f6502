// Relations between runs of the forward of selected attention whose keys or values are shifted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_selected_attention/runs.h"

namespace attncheck::properties {
namespace {

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

}  // namespace

void add_selected_forward_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list);
    add_attention_laws(list, selected_attention_operator(), false);
    list.push_back({"value_shift", "V + c gives O + c", value_shift, with_moderate_data, moderate});
    list.push_back({"key_shift", "K + c moves row_max by scale <q, c> and nothing else", key_shift,
                    with_moderate_data, moderate});
}

}  // namespace attncheck::properties
