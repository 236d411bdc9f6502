// What the laws of attention gradients share: the numbers of a problem with its exact forward, the
// gradients of a candidate with their bounds, and sums per sequence and key/value head.
//
//   delta_i = <dO_i, O_i>
//   P_ij    = exp(s_ij - row_max_i) / row_sum_i
//   dS_ij   = P_ij (g_ij <dO_i, v_j> - delta_i)
//   dQ_i    = scale sum_j dS_ij k_j
//   dK_j    = scale sum_i dS_ij q_i
//   dV_j    = sum_i P_ij g_ij dO_i
//
// O* is the exact output, g_ij the factor of dropout. The given statistics make P of row i f_i
// times the exact P; the reference forward gives f_i.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "properties/laws/attention_run.h"

namespace attncheck::properties {

/// Whether a row with this row_sum sees a key: the sum is 0 beyond the sequences and FLT_MAX in a
/// row without keys.
inline bool sees_keys(double row_sum) { return row_sum > 0 && row_sum < 1e38; }

/// The numbers of a gradient problem and its exact forward. Refers to the problem.
struct GradientNumbers : AttentionNumbers {
    const AttentionProblem& problem;
    std::vector<double> exact_output;  ///< O* [T1,N1,Dv]
    std::vector<double> factor;        ///< f_i = sum_j P_ij [T1,N1]; 0 for rows without a key

    explicit GradientNumbers(const AttentionProblem& problem);
    /// sum_j P_ij g_ij [T1,N1]: f_i without dropout.
    std::vector<double> kept() const;
    /// The largest |f_i - 1|.
    double statistics_error() const;
};

/// A gradient of a run in packed order, by rows.
struct BoundedGradient : BoundedOutput {
    std::size_t width;

    BoundedGradient(const AttentionRun& run, const ExpectedOutputs& expected,
                    const std::string& name)
        : BoundedOutput(run, expected, name),
          width(static_cast<std::size_t>(run.problem.output_named(name).width)) {}
};

/// Calls visit(row * heads + head, slot) for every row of queries or keys that belongs to a
/// sequence; its slot is (sequence, key/value head).
void for_each_slot(const AttentionProblem& problem, bool of_keys,
                   const std::function<void(std::size_t row, std::size_t slot)>& visit);

/// One sum per slot, or one per channel of it.
Identity identity_per_slot(const AttentionProblem& problem, std::size_t width = 1);

/// Every output of a run against expected values in packed order.
Verdict verdict_on_expected(const AttentionRun& run, const ExpectedOutputs& expected,
                            const std::string& relation);

}  // namespace attncheck::properties
