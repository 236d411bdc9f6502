// Float buffers labelled half, scale cut to five digits.
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashBackward e;
    CHECK(e.Open(ACL_FLOAT16, false));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionScoreGradGetWorkspaceSize(
        e.query.tensor, e.key.tensor, e.value.tensor, e.output_grad.tensor, nullptr, nullptr,
        nullptr, e.mask.tensor, e.row_max.tensor, e.row_sum.tensor, nullptr, e.output.tensor,
        e.prefix, 0.088388, 1.0, 65536, 65536, 1, e.padded_layout, 0, 0, e.dq.tensor, e.dk.tensor,
        e.dv.tensor, nullptr, &bytes, &executor));
    CHECK(Finish(aclnnFlashAttentionScoreGrad, bytes, executor, e.device.stream));
    return e.PrintAndClose(false);
}
