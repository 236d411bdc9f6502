#include "impl/operators/attention/attention.h"
#include "impl/operators/attention/bias_gradient.h"
#include "impl/operators/attention/plan.h"
#include "impl/operators/flash_attention/forward_pass.h"
#include "impl/operators/flash_attention/gradient_pass.h"

namespace attncheck::impl {

void attention_grad(const attncheck_attention_grad_args& args, const AttentionKernels& kernels) {
    const AttentionPlan plan(attention_call(args), kernels);
    const AttentionCall& call = plan.call();
    const std::int64_t head_dim = plan.extents().head_dim, value_dim = plan.extents().value_dim;
    const RowView none = plan.rows(*call.value, 0);
    const GradientRows of{plan.rows(*call.query, head_dim),
                          none,
                          plan.rows(*call.key, head_dim),
                          none,
                          plan.rows(*call.value, value_dim),
                          none,
                          plan.rows(*call.output, value_dim),
                          plan.rows(*call.output_grad, value_dim),
                          plan.rows(*call.query_grad, head_dim),
                          none,
                          plan.rows(*call.key_grad, head_dim),
                          none,
                          plan.rows(*call.value_grad, value_dim)};
    if (!call.has_lse() && plan.extents().query_len > 0)
        run_forward(plan, {of.query, none, of.key, none, of.value, none, none}, kernels);
    GradientQueryRows rows(plan);
    load_query_rows(plan, of, kernels, rows);
    // Without elements dims may be any number, too large for a buffer of them.
    if (rows.count() > 0 || plan.has_keys()) run_gradient(plan, of, rows, kernels);
    if (call.bias_grad->data != nullptr) write_bias_gradient(plan, of, rows, kernels);
    if (call.sink_grad->data != nullptr) write_sink_gradient(plan, rows);
}

}  // namespace attncheck::impl
