// What relations of the gradient of flash attention share: its numbers with the exact forward,
// expected values and verdicts with ropes behind every row, and sums per sequence and key/value
// head.
//
//   delta_i = <dO_i, O_i>   dS_ij = P_ij (g_ij <dO_i, v_j> - delta_i)   P_ij = exp(s_ij -
//   row_max_i) / row_sum_i dQ_i = scale sum_j dS_ij k_j   dK_j = scale sum_i dS_ij q_i   dV_j =
//   sum_i P_ij g_ij dO_i
//
// O* is the exact output, g_ij what dropout does. The given statistics make P of a row f_i times
// the exact one, whatever they are; f_i is known. Q, K and their gradients are those with the ropes
// behind every row.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {

/// The numbers of a gradient problem and its exact forward.
struct FlashGradientNumbers {
    std::vector<double> query, key, value, output, output_grad, row_max, row_sum;
    // When asked for, [T1,N1,Dv] and [T1,N1]; 0 for rows without a key:
    std::vector<double> exact_output;  ///< O*
    std::vector<double> factor;        ///< f_i = sum_j P_ij
    std::vector<double> kept;          ///< sum_j P_ij g_ij
    const FlashParts& parts;

    explicit FlashGradientNumbers(const FlashParts& of)
        : query(of.query_values()),
          key(of.key_values()),
          value(of.values(of.value)),
          output(of.values(of.output)),
          output_grad(of.values(of.output_grad)),
          row_max(of.row_max.begin(), of.row_max.end()),
          row_sum(of.row_sum.begin(), of.row_sum.end()),
          parts(of) {}

    ref::AttentionInputs<double> forward() const {
        return {query, key, value, parts.shape.scale, parts.shape.dropout.keep_prob};
    }
    std::size_t head_dim() const {
        return static_cast<std::size_t>(parts.shape.head_dim + parts.shape.rope_dim);
    }
    std::size_t value_dim() const { return static_cast<std::size_t>(parts.shape.value_dim); }

    /// Fills the exact output and what follows from it.
    void attend();

    /// The largest |f_i - 1|.
    double statistics_error() const {
        double largest = 0;
        for (const double f : factor)
            if (f != 0) largest = std::max(largest, std::fabs(f - 1));
        return largest;
    }
    bool sees_keys(std::size_t row) const { return row_sum[row] > 0 && row_sum[row] < 1e38; }
};

/// Expected values of the given numbers; the bounds also cover statistics that move P by prob_error
/// and an output that is off by output_error [T1,N1,Dv].
ExpectedOutputs expected_of(const FlashGradientNumbers& in, const ref::RoundingClass& rounding,
                            std::span<const double> output_error = {}, double prob_error = 0);

ExpectedOutputs expected_wide(const FlashParts& parts, const ref::RoundingClass& rounding);

/// Place of element k of a gradient with its rope behind every row.
std::string wide_place(const FlashParts& parts, const std::string& name, std::size_t k);

Verdict verdict_on_wide(const FlashParts& parts, const std::string& name, std::vector<double> left,
                        std::vector<double> right, const std::vector<double>& allowed,
                        const std::string& relation);

/// Every gradient of a run against expected values, as verdict_on_values does for a call.
Verdict verdict_on_expected(const FlashParts& parts, const FlashRun& run,
                            const ExpectedOutputs& expected, const std::string& relation);

/// Walks [rows, heads, width] of queries or keys and gives each row the slot (sequence, key/value
/// head) it belongs to; rows beyond the last sequence are left out.
template <class Visit>
void for_each_slot(const FlashParts& parts, bool of_keys, const Visit& visit) {
    const ref::FlashAttentionShape& s = parts.shape;
    const std::int64_t heads = of_keys ? s.kv_heads : s.query_heads, group = heads / s.kv_heads;
    const auto places = of_keys ? row_places(s.kv_lengths, s.total_keys)
                                : row_places(s.query_lengths, s.total_queries);
    for (std::size_t row = 0; row < places.size(); ++row)
        for (std::int64_t head = 0; head < heads && places[row].sequence >= 0; ++head)
            visit(row * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head),
                  static_cast<std::size_t>(places[row].sequence * s.kv_heads + head / group));
}

std::size_t slots(const FlashParts& parts);

/// One number per (sequence, key/value head), or one per channel of it.
Identity identity_per_slot(const FlashParts& parts, std::size_t width = 1);

/// The gradient is that of the forward (flash_attention_adjoint.cc).
void add_flash_adjoint_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
