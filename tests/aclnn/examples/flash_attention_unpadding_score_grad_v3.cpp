// Float buffers labelled bfloat16, scale cut to five digits.
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashBackward e;
    CHECK(e.Open(ACL_BF16, true));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
        e.query.tensor, e.query_rope.tensor, e.key.tensor, e.key_rope.tensor, e.value.tensor,
        e.output_grad.tensor, nullptr, nullptr, nullptr, e.mask.tensor, e.row_max.tensor,
        e.row_sum.tensor, nullptr, e.output.tensor, e.prefix, e.query_lengths, e.key_lengths,
        e.query_start, e.key_start, 0.088388, 1.0, 65536, 65536, 1, e.packed_layout, 0, 0, 1,
        e.dq.tensor, e.dq_rope.tensor, e.dk.tensor, e.dk_rope.tensor, e.dv.tensor, nullptr, &bytes,
        &executor));
    CHECK(Finish(aclnnFlashAttentionUnpaddingScoreGradV3, bytes, executor, e.device.stream));
    return e.PrintAndClose(true);
}
