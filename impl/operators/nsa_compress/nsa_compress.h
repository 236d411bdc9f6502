#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_H

#include "attncheck/candidate.h"
#include "impl/kernels/nsa_compress_kernels.h"

namespace attncheck::impl {

/// Y[o_b + j, n, c] = sum_{r < block} X[a_b + j * stride + r, n, c] * W[r, n]   (nsa.md 2.3)
///
/// Expects  a call that validate_nsa_compress accepts.
/// Rounding every element is one fp32 sum in order of r (bf16 with products of pairs: of pairs of
///          rows, the odd one first), then one rounding to nearest even; the bits depend on the
///          instruction set (fused multiply-add or not, pairs or not) and on nothing else.
/// NaN/Inf  every product of the formula is formed and no other, so they reach exactly the windows
///          that hold them.
/// Traffic  X is read once but for block - stride tokens per chunk of rows, Y is written once; of
///          a large X whose lines are asked for twice also one element per page (touch_pages).
void nsa_compress(const attncheck_nsa_compress_args& args, const KernelTable& kernels);

/// dX[t, n, c] = sum over windows j and rows r that meet in token t of W[r, n] * dY[j, n, c]
/// dW[r, n]    = sum over windows j and channels c of dY[j, n, c] * X[a_b + j * stride + r, n, c]
/// (nsa.md 3.3; dX[t] is zero where the sum is empty)
///
/// Expects  a call that validate_nsa_compress_grad accepts.
/// Rounding dX as the forward. dW is summed in fp32 per chunk of tokens, chunks in order; the
///          chunks depend on the shape alone, so the bits do not depend on the number of threads.
/// Empty    tokens without a window get +0 and their X is not used; without any window dW is +0.
/// Traffic  X and dY are read once, dX is written once, past the cache if large; an element per
///          page of a large X and dX may be read ahead of its use as well. With products of pairs a
///          chunk whose dW is not finite, or so small that something may have been lost, is
///          computed twice.
/// Memory   at most kMaxPartialBytes for the partial dW, whatever T is.
void nsa_compress_grad(const attncheck_nsa_compress_grad_args& args, const KernelTable& kernels);

inline constexpr std::int64_t kMaxPartialBytes = std::int64_t{4} << 20;

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_H
