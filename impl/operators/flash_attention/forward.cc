#include "impl/operators/flash_attention/flash_attention.h"
#include "impl/operators/flash_attention/forward_pass.h"
#include "impl/operators/flash_attention/plan.h"

namespace attncheck::impl {
namespace {

// Rows of TND that belong to no sequence.
void zero_rows_beyond(const FlashPlan& plan, const RowView& output) {
    if (!plan.extents().is_packed()) return;
    const FlashSequence last = plan.sequence(plan.extents().batch - 1);
    for (std::int64_t row = last.query_begin + last.query_len; row < plan.extents().query_len;
         ++row) {
        for (std::int64_t head = 0; head < plan.extents().query_heads; ++head) {
            output.write_zeros(output.offset(0, head, row));
            plan.write_statistic_beyond(*plan.call().softmax_max, row, head, 0.0f);
            plan.write_statistic_beyond(*plan.call().softmax_sum, row, head, 0.0f);
        }
    }
}

}  // namespace

void flash_attention_score(const attncheck_flash_attention_score_args& args,
                           const AttentionKernels& kernels) {
    const FlashPlan plan(flash_call(args));
    const FlashCall& call = plan.call();
    const std::int64_t head_dim = plan.extents().head_dim, value_dim = plan.extents().value_dim;
    const ForwardRows rows{plan.rows(*call.query, head_dim),
                           plan.rows(*call.query_rope, plan.rope_dim()),
                           plan.rows(*call.key, head_dim),
                           plan.rows(*call.key_rope, plan.rope_dim()),
                           plan.rows(*call.value, value_dim),
                           plan.rows(*call.value, 0),
                           plan.rows(*call.output, value_dim)};
    run_forward(plan, rows, kernels);
    zero_rows_beyond(plan, rows.output);
}

}  // namespace attncheck::impl
