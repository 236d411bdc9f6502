#ifndef ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H
#define ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H

#include <cstdint>

#include "attncheck/candidate.h"
#include "impl/attention_kernels.h"

/// Attention of every query over the keys of the blocks listed for it, and its gradient.
///
/// Per query t, query head n1 of kv head n2 = n1 / G, over the visible keys j of the listed blocks
/// (key_selection.h; a block listed twice gives its keys twice):
///
///   S_j = scale * <q, k_j>,  m = max S_j,  l = sum exp(S_j - m),  P_j = exp(S_j - m) / l
///   O = sum P_j v_j                                              (nsa.md 4.5)
///
///   dP_j = <dO, v_j>,  delta = <dO, O>,  dS_j = P_j (dP_j - delta)
///   dq = scale * sum_j dS_j k_j,  dk_j = scale * sum dS_j q,  dv_j = sum P_j dO      (nsa.md 5.3)
namespace attncheck::impl {

/// Expects  a call that validate_nsa_selected_attention accepts.
/// Shapes   query [T1, N1, D], key [T2, N2, D], value [T2, N2, Dv]; the G heads of a group are one
///          matrix against tiles of at most kTileKeys gathered keys, with online softmax.
/// Rounding everything in fp32, P included (but see nsa_selected_attention_in_pairs), one rounding
///          to nearest even at the output. Bits depend on the instruction set and on nothing else.
/// Empty    a row without a visible key: output 0, softmax_max -FLT_MAX, softmax_sum +FLT_MAX;
///          tokens beyond the last sequence: 0 in all three.
/// NaN/Inf  reach a row from its visible keys and its query only; hidden keys are not multiplied.
/// Memory   packed keys (and values, when their channels are not contiguous) of the listed blocks,
///          in 16 bits.
void nsa_selected_attention(const attncheck_nsa_selected_attention_args& args,
                            const AttentionKernels& kernels);

/// Expects  a call that validate_nsa_selected_attention_grad accepts.
/// P        from element 0 of the given statistics as they are: any pair (m + c, l exp(-c)) gives
///          the same P, and P is not clamped.
/// Rounding as the forward; scale is applied to the sums. dk and dv of a key are summed in order of
///          the queries, so bits do not depend on the number of threads.
/// Empty    rows without a visible key contribute nothing and get dq = +0; keys that nobody sees
///          and tokens beyond the last sequence get +0.
/// NaN/Inf  as the forward: a pair of query and key that is not visible is not multiplied.
/// Memory   packed keys and values in 16 bits and T1 * N2 * K int32 (SelectingQueries).
void nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args& args,
                                 const AttentionKernels& kernels);

/// The same two with pair products of bf16 numbers, block by block (selected_tile.h): what they are
/// for bf16 tensors on machines that have these.
///
/// Rounding P and dS to bf16 where they are factors, everything else in fp32. dk and dv of a key
/// are
///          summed tile by tile inside slices of the queries, and over those in order; cuts depend
///          on the lengths and on nothing else.
/// Memory   packed keys (twice, in the gradient) and values of the listed blocks in 16 bits; in the
///          gradient at most 8 fp32 copies of dk and dv, see selected_key_sums.h.
void nsa_selected_attention_in_pairs(const attncheck_nsa_selected_attention_args& args,
                                     const AttentionKernels& kernels);
void nsa_selected_attention_grad_in_pairs(const attncheck_nsa_selected_attention_grad_args& args,
                                          const AttentionKernels& kernels);

/// Keys of a tile: with 32 heads its logits take 32 KiB. At least two of the largest blocks, so
/// that a tile is never less than half full.
inline constexpr std::int64_t kTileKeys = 256;

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H
