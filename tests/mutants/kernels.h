// The two computations, on validated problems.
//
//   Y[o_b + j, n, c] = sum_{r < l} X[a_b + j*d + r, n, c] * W[r, n]
//   dX[t, n, c]      = sum of W[r, n] * dY[o_b + j, n, c] over the blocks (b, j) that cover t,
//                      with r = t - a_b - j*d
//   dW[r, n]         = sum of dY[o_b + j, n, c] * X[a_b + j*d + r, n, c] over blocks (b, j) and c
//
// Products and sums in fp32, one rounding at the end. The same workers in the same order whatever
// the machine.
#pragma once

#include <cstdint>

#include "plan.h"
#include "problem.h"
#include "scratch.h"

namespace attncheck::mutants {

void compress(const Problem& problem, const Plan& plan);
void compress_grad(const Problem& problem, const Plan& plan);

ScratchDefects scratch_defects(bool keeps_old);

/// Remembers how a call ended, for the defect of a flag that outlives it.
void note_rejection(bool rejected);

/// Tokens at the start of a sequence that some block covers.
inline std::int64_t covered_length(const Problem& problem, const Sequence& sequence) {
    return sequence.blocks == 0 ? 0 : (sequence.blocks - 1) * problem.stride + problem.block;
}

}  // namespace attncheck::mutants
