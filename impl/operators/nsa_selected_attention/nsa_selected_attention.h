#ifndef ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H
#define ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"

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

/// Both go block by block (selected_tile.h): a block of keys meets all queries of a chunk that list
/// it, with the G heads of a group as rows of one matrix.
///
/// Rounding everything in fp32; bf16 tensors on machines with pair products (bf16_dot_kernels.h)
///          have P and dS rounded to bf16 where they are factors. One rounding to nearest even at
///          the output.
/// NaN/Inf  reach a row from its visible keys and its query only; a hidden pair adds nothing.

/// Expects  a call that validate_nsa_selected_attention accepts.
/// Shapes   query [T1, N1, D], key [T2, N2, D], value [T2, N2, Dv].
/// Order    online softmax over the blocks of a list, ascending: bits depend on the instruction set
///          and on nothing else.
/// Empty    a row without a visible key: output 0, softmax_max -FLT_MAX, softmax_sum +FLT_MAX;
///          tokens beyond the last sequence: 0 in all three.
/// Memory   packed keys and values of the listed blocks, in 32 bits, as pairs in 16.
void nsa_selected_attention(const attncheck_nsa_selected_attention_args& args,
                            const AttentionKernels& kernels);

/// Expects  a call that validate_nsa_selected_attention_grad accepts.
/// P        from element 0 of the given statistics as they are: any pair (m + c, l exp(-c)) gives
///          the same P, and P is not clamped.
/// Order    scale is applied to the sums. dk and dv of a key are summed tile by tile inside slices
///          of the queries, and over those in order; cuts depend on the lengths and on nothing
///          else, so bits do not depend on the number of threads.
/// Empty    rows without a visible key contribute nothing and get dq = +0; keys that nobody sees
///          and tokens beyond the last sequence get +0.
/// Memory   packed keys (twice) and values of the listed blocks, in 32 bits, as pairs in 16; at
///          most 8 fp32 copies of dk and dv, see selected_key_sums.h.
void nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args& args,
                                 const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_H
