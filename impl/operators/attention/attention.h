#ifndef ATTNCHECK_IMPL_ATTENTION_H
#define ATTNCHECK_IMPL_ATTENTION_H

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"

/// Attention and its gradient, the neutral operators of candidate.h, on the passes of
/// FlashAttention: where both can say the same, both compute the same bits.
///
///   S_j = c tanh(scale <q, k_j> / c) + bias_j;  a sink is one more logit, met before all keys
///   dS_j = P_j (dP_j - delta),  dbias = dS,  dS'_j = dS_j (1 - tanh^2),  dsink = -sum P_sink delta
namespace attncheck::impl {

/// Expects  a call that validate_attention accepts.
/// Hidden   keys that mask, window, kv_length or a bias of -infinity hide are skipped.
/// Empty    a row without a visible key: output 0; LSE the sink, or -infinity without one.
/// The rest as flash_attention_score.
void attention(const attncheck_attention_args& args, const AttentionKernels& kernels);

/// Expects  a call that validate_attention_grad accepts.
/// P        exp(S - LSE) from the given LSE; without one the forward runs again for maximum and sum.
/// dbias    sums in fp32 in one order, one slice (batch entry and head of the bias) after the other:
///          P and dS are computed once more.
/// The rest as flash_attention_score_grad.
void attention_grad(const attncheck_attention_grad_args& args, const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_H
