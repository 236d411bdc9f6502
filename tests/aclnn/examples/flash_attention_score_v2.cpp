// Real floats, sequence before batch.
#include <cmath>

#include "aclnnop/aclnn_flash_attention_score.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashForward e;
    CHECK(e.Open(ACL_FLOAT, false));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionScoreV2GetWorkspaceSize(
        e.query.tensor, e.key.tensor, e.value.tensor, nullptr, nullptr, nullptr, e.mask.tensor,
        e.prefix, e.query_start, e.key_start, 1.0 / std::sqrt(128.0), 1.0, INT32_MAX, INT32_MAX, 1,
        e.padded_layout, 0, 0, 1, e.row_max.tensor, e.row_sum.tensor, nullptr, e.output.tensor,
        &bytes, &executor));
    CHECK(Finish(aclnnFlashAttentionScoreV2, bytes, executor, e.device.stream));
    return e.PrintAndClose();
}
