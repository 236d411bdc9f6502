// Float buffers labelled half, scale cut to five digits.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashForward e;
    CHECK(e.Open(ACL_FLOAT16, false));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionScoreGetWorkspaceSize(
        e.query.tensor, e.key.tensor, e.value.tensor, nullptr, nullptr, nullptr, e.mask.tensor,
        e.prefix, 0.088388, 1.0, 65536, 65536, 1, e.padded_layout, 0, 0, e.row_max.tensor,
        e.row_sum.tensor, nullptr, e.output.tensor, &bytes, &executor));
    CHECK(Finish(aclnnFlashAttentionScore, bytes, executor, e.device.stream));
    return e.PrintAndClose();
}
