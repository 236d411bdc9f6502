// What relations of the gradient of selected attention share: its numbers with the exact forward,
// expected values, and sums per sequence and key/value head.
//
//   delta_i = <dO_i, O_i>   dS_ij = P_ij (<dO_i, v_j> - delta_i)   P_ij = exp(s_ij - row_max_i) /
//   row_sum_i dQ_i = scale sum_j dS_ij k_j   dK_j = scale sum_i dS_ij q_i   dV_j = sum_i P_ij dO_i
//
// O* is the exact output; the given O is O* rounded, and P sums to 1 up to the rounding of the
// statistics, a factor 1 + eta_i that is common to the row.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "properties/operators/nsa_selected_attention/runs.h"

namespace attncheck::properties {

inline constexpr double kFp32 = 0x1p-24;

/// The numbers of a gradient problem and its exact forward.
struct SelectedGradientNumbers {
    std::vector<double> query, key, value, output, output_grad, row_max, row_sum;
    std::vector<double> exact_output;  ///< O*, when asked for
    std::vector<ref::SelectedQuery> rows;
    const SelectedParts& parts;

    explicit SelectedGradientNumbers(const SelectedParts& of)
        : query(of.values(of.query)),
          key(of.values(of.key)),
          value(of.values(of.value)),
          output(of.values(of.output)),
          output_grad(of.values(of.output_grad)),
          row_max(of.row_max.begin(), of.row_max.end()),
          row_sum(of.row_sum.begin(), of.row_sum.end()),
          rows(ref::selected_queries(of.shape)),
          parts(of) {}

    ref::AttentionInputs<double> forward() const {
        return {query, key, value, parts.narrowed_scale(), 1};
    }

    void attend() {
        exact_output.resize(output.size());
        ref::dense_attention<double>(parts.shape.dense(), parts.columns(), forward(), exact_output);
    }

    /// |eta_i|: the statistics are reference statistics, rounded to fp32 and possibly shifted by at
    /// most 4.
    double statistics_error(std::size_t row) const { return kFp32 * (std::fabs(row_max[row]) + 8); }
    double largest_statistics_error() const {
        double largest = 0;
        for (std::size_t row = 0; row < row_max.size(); ++row)
            if (sees_keys(row)) largest = std::max(largest, statistics_error(row));
        return largest;
    }
    bool sees_keys(std::size_t row) const { return row_sum[row] > 0 && row_sum[row] < 1e38; }
};

/// Expected values of the given numbers; the bounds also cover statistics that move P by prob_error
/// and an output that is off by output_error [T1,N1,Dv].
ExpectedOutputs expected_with_errors(const SelectedGradientNumbers& in,
                                     const ref::RoundingClass& rounding,
                                     std::span<const double> output_error, double prob_error);

/// Sequence of every key row, -1 beyond the last.
std::vector<std::int64_t> sequence_of_keys(const ref::SelectedAttentionShape& s);

/// Walks [rows, heads, width] of queries or keys and gives each element the slot (sequence,
/// key/value head) it belongs to; rows beyond the last sequence are left out.
template <class Visit>
void for_each_slot(const SelectedParts& parts, bool of_keys, const Visit& visit) {
    const ref::SelectedAttentionShape& s = parts.shape;
    const std::int64_t rows = of_keys ? s.total_keys : s.total_queries,
                       heads = of_keys ? s.kv_heads : s.query_heads, group = heads / s.kv_heads;
    const auto queries = ref::selected_queries(s);
    const auto key_sequences = sequence_of_keys(s);
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const std::int64_t sequence = of_keys ? key_sequences[at] : queries[at].sequence;
        if (sequence < 0) continue;
        for (std::int64_t head = 0; head < heads; ++head)
            visit(static_cast<std::size_t>(row * heads + head),
                  static_cast<std::size_t>(sequence * s.kv_heads + head / group));
    }
}

std::size_t slots(const SelectedParts& parts);

/// One number per (sequence, key/value head), or one per channel of it.
Identity identity_per_slot(const SelectedParts& parts, std::size_t width = 1);

/// The gradient is that of the forward (nsa_selected_attention_adjoint.cc).
void add_selected_adjoint_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
