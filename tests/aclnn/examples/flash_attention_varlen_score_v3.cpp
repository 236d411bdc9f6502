// Float buffers labelled bfloat16, scale cut to five digits.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashForward e;
    CHECK(e.Open(ACL_BF16, true));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
        e.query.tensor, e.query_rope.tensor, e.key.tensor, e.key_rope.tensor, e.value.tensor,
        nullptr, nullptr, nullptr, e.mask.tensor, e.prefix, e.query_lengths, e.key_lengths,
        e.query_start, e.key_start, 0.088388, 1.0, 65536, 65536, 1, e.packed_layout, 0, 0, 1,
        e.row_max.tensor, e.row_sum.tensor, nullptr, e.output.tensor, &bytes, &executor));
    CHECK(Finish(aclnnFlashAttentionVarLenScoreV3, bytes, executor, e.device.stream));
    return e.PrintAndClose();
}
