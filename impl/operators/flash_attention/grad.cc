#include "impl/operators/flash_attention/flash_attention.h"
#include "impl/operators/flash_attention/gradient_pass.h"
#include "impl/operators/flash_attention/plan.h"

namespace attncheck::impl {
namespace {

void zero_rows(const RowView& view, std::int64_t begin, std::int64_t end, std::int64_t heads) {
    if (view.dim() == 0) return;
    for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
            view.write_zeros(view.offset(0, head, row));
        }
    }
}

// Rows of TND that belong to no sequence.
void zero_rows_beyond(const FlashPlan& plan, const GradientRows& of) {
    const FlashExtents& extents = plan.extents();
    if (!extents.is_packed()) return;
    const FlashSequence last = plan.sequence(extents.batch - 1);
    const std::int64_t query_end = last.query_begin + last.query_len,
                       key_end = last.key_begin + last.key_len;
    zero_rows(of.query_grad, query_end, extents.query_len, extents.query_heads);
    zero_rows(of.query_rope_grad, query_end, extents.query_len, extents.query_heads);
    zero_rows(of.key_grad, key_end, extents.key_len, extents.kv_heads);
    zero_rows(of.key_rope_grad, key_end, extents.key_len, extents.kv_heads);
    zero_rows(of.value_grad, key_end, extents.key_len, extents.kv_heads);
}

}  // namespace

void flash_attention_score_grad(const attncheck_flash_attention_score_grad_args& args,
                                const AttentionKernels& kernels) {
    const FlashPlan plan(flash_call(args));
    const FlashCall& call = plan.call();
    const std::int64_t head_dim = plan.extents().head_dim, value_dim = plan.extents().value_dim;
    const GradientRows of{plan.rows(*call.query, head_dim),
                          plan.rows(*call.query_rope, plan.rope_dim()),
                          plan.rows(*call.key, head_dim),
                          plan.rows(*call.key_rope, plan.rope_dim()),
                          plan.rows(*call.value, value_dim),
                          plan.rows(*call.value, 0),
                          plan.rows(*call.output, value_dim),
                          plan.rows(*call.output_grad, value_dim),
                          plan.rows(*call.query_grad, head_dim),
                          plan.rows(*call.query_rope_grad, plan.rope_dim()),
                          plan.rows(*call.key_grad, head_dim),
                          plan.rows(*call.key_rope_grad, plan.rope_dim()),
                          plan.rows(*call.value_grad, value_dim)};
    GradientQueryRows rows(plan);
    load_query_rows(plan, of, kernels, rows);
    run_gradient(plan, of, rows, kernels);
    zero_rows_beyond(plan, of);
}

}  // namespace attncheck::impl
