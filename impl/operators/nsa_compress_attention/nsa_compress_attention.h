#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_H

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"

/// Attention over compressed keys, and the selection blocks that its probabilities point to.
///
/// Per query t at position s of its sequence and query head n1 of kv head n2 = n1 / G, over the
/// compressed keys i of the sequence that atten_mask[s, i] does not hide (nsa.md 6.3 to 6.5):
///
///   S_i = scale * <q, k_i>,  m = max S_i,  l = sum exp(S_i - m),  P_i = exp(S_i - m) / l
///   O = sum P_i v_i
///   score_j = sum over the G heads of the block scores of P (nsa_compress_attention_scores.h)
///   topk = the K blocks with the largest scores; those of topk_mask[s, j] come first
namespace attncheck::impl {

/// Expects  a call that validate_nsa_compress_attention accepts; the group size may be any.
/// Shapes   query [T1, N1, D], key [C, N2, D], value [C, N2, Dv], topk_indices int32 [T1, N2, K];
///          statistics [T1, N1, 8], per sequence in the order [N1, S_q] (nsa.md 6.5). The heads of
///          a group and some queries are the rows of one matrix against tiles of keys.
/// Rounding everything in fp32, P included, one rounding to nearest even at the output. Bits depend
///          on the instruction set and on nothing else.
/// Empty    a row without a visible key: output 0, softmax_max -FLT_MAX, softmax_sum +FLT_MAX and
///          all its scores 0; tokens beyond the last sequence: 0 in all four.
/// NaN/Inf  reach a row from its visible keys and its query only; hidden keys are not multiplied.
///          NaN scores rank last.
/// Memory   one row tile of probabilities per thread, [max(128, G), Cmp] in fp32.
void nsa_compress_attention(const attncheck_nsa_compress_attention_args& args,
                            const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_H
