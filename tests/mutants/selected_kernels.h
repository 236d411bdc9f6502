// The two computations, on validated problems (legend: selected_problem.h).
//
//   a[j]   = scale * <q, k_j>                         columns j as in selected_columns.h
//   P[j]   = exp(a[j] - row_max) / row_sum            visible columns only
//   O      = sum_j P[j] v_j
//   delta  = <dO, O>,  dS[j] = P[j] * (<dO, v_j> - delta)
//   dq     = scale * sum_j dS[j] k_j
//   dk[u]  = scale * sum of dS[j] q over the queries, heads of the group and columns with key u
//   dv[u]  = sum of P[j] dO over the same
//
// fp32 throughout, one rounding at the end. A row without a visible column: output 0, statistics
// -FLT_MAX and +FLT_MAX, no gradient. Rows beyond the last length: 0.
#pragma once

#include <cstdint>

#include "scratch.h"
#include "selected_problem.h"

namespace attncheck::mutants {

void attend(const SelectedProblem& problem, const SelectedPlan& plan);
void attend_grad(const SelectedProblem& problem, const SelectedPlan& plan);

ScratchDefects selected_scratch_defects();

/// Towards zero.
inline std::uint16_t truncate(Half type, float value) {
    const std::uint16_t bits = narrow(type, value);
    const float rounded = widen(type, bits);
    const bool grew = rounded < 0 ? rounded < value : rounded > value;
    return grew ? static_cast<std::uint16_t>(bits - 1) : bits;
}

/// Heads of a group that are computed; all of them without a defect.
inline std::int64_t heads_computed(std::int64_t group_size, bool only_sixteen, bool power_of_two) {
    std::int64_t heads = group_size;
    if (only_sixteen && heads > 16) heads = 16;
    if (power_of_two)
        while ((heads & (heads - 1)) != 0) heads &= heads - 1;
    return heads;
}

}  // namespace attncheck::mutants
