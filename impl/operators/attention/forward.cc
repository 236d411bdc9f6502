#include "impl/operators/attention/attention.h"
#include "impl/operators/attention/plan.h"
#include "impl/operators/flash_attention/forward_pass.h"

namespace attncheck::impl {

void attention(const attncheck_attention_args& args, const AttentionKernels& kernels) {
    const AttentionPlan plan(attention_call(args), kernels);
    const AttentionCall& call = plan.call();
    const std::int64_t head_dim = plan.extents().head_dim, value_dim = plan.extents().value_dim;
    const RowView none = plan.rows(*call.value, 0);
    run_forward(plan,
                {plan.rows(*call.query, head_dim), none, plan.rows(*call.key, head_dim), none,
                 plan.rows(*call.value, value_dim), none, plan.rows(*call.output, value_dim)},
                kernels);
}

}  // namespace attncheck::impl
