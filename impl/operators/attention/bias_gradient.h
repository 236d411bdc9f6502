#ifndef ATTNCHECK_IMPL_ATTENTION_BIAS_GRADIENT_H
#define ATTNCHECK_IMPL_ATTENTION_BIAS_GRADIENT_H

#include "impl/operators/attention/plan.h"
#include "impl/operators/flash_attention/gradient_pass.h"

namespace attncheck::impl {

/// dbias = sum of dS over the pairs of each element; 0 where all of them are hidden.
void write_bias_gradient(const AttentionPlan& plan, const GradientRows& of,
                         const GradientQueryRows& rows, const AttentionKernels& kernels);

/// dsink_h = -sum over the rows of head h of exp(sink_h - m) / l delta.
void write_sink_gradient(const AttentionPlan& plan, const GradientQueryRows& rows);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_BIAS_GRADIENT_H
