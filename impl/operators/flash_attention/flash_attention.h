#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_H

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"

/// FlashAttentionScore and its gradient. For query i, over the keys j that it sees
/// (flash_attention.md 3.1, 3.6; contract.md, decisions 1 to 3 and 8 to 13):
///
///   S_j = scale * <q, k_j> + bias_j, pse_type 1: scale * (<q, k_j> + bias_j)
///   m = max S_j,  l = sum exp(S_j - m),  P_j = exp(S_j - m) / l
///   Z_j = 1 / keep_prob where dropout keeps the pair, 0 where it drops it, 1 without dropout
///   O = sum P_j Z_j v_j
///
///   dP_j = Z_j <dO, v_j>,  delta = <dO, O>,  dS_j = P_j (dP_j - delta)
///   dq = scale * sum_j dS_j k_j,  dk_j = scale * sum_i dS_j q,  dv_j = sum_i P_j Z_j dO
///
/// Dao 2023 (FlashAttention-2), algorithms 1 and 2: no matrix of logits is ever stored.
namespace attncheck::impl {

/// Expects  a call that validate_flash_attention_score accepts.
/// Rounding fp32 sums, one rounding to nearest even at the output. With products of bf16 pairs P
/// and
///          dS are rounded to bf16 before they enter a product, otherwise never. Bits depend on
///          the instruction set and the shape, not on the number of threads.
/// Empty    a row without a visible key: output 0, softmax_max -FLT_MAX, softmax_sum +FLT_MAX; rows
///          beyond the last sequence of TND: 0 in all three.
/// NaN/Inf  reach a row from its query, its visible keys, their bias and, where dropout keeps the
///          pair, their values only. The maximum of logits with a NaN is NaN.
/// Memory   a few tiles per thread and, in TND, two numbers per sequence.
void flash_attention_score(const attncheck_flash_attention_score_args& args,
                           const AttentionKernels& kernels);

/// Expects  a call that validate_flash_attention_score_grad accepts.
/// P        from copy 0 of the given statistics as they are: any pair (m + c, l exp(-c)) gives the
///          same P, and P is not clamped. O is the given one.
/// Rounding as the forward; scale is applied to the sums. Every sum has one order, so bits do not
///          depend on the number of threads.
/// Empty    rows without a visible key contribute nothing and get dq = 0; keys that nobody sees and
///          rows beyond the last sequence get 0.
/// NaN/Inf  as the forward: a hidden pair contributes to nothing, a dropped one to neither dv nor,
///          through its value and dO, to dP.
/// Memory   as the forward, three numbers per row of queries, and dq in fp32: once for every 512
///          keys, up to 8 times as long as that is no more than 256 MiB.
void flash_attention_score_grad(const attncheck_flash_attention_score_grad_args& args,
                                const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_H
