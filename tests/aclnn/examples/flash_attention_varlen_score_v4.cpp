// Real floats, statistics in the order of the input.
#include <cmath>

#include "aclnnop/aclnn_flash_attention_score.h"
#include "flash_example.h"

using namespace example;

int main() {
    FlashForward e;
    CHECK(e.Open(ACL_FLOAT, true));
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(
        e.query.tensor, e.key.tensor, e.value.tensor, nullptr, nullptr, nullptr, e.mask.tensor,
        e.prefix, e.query_lengths, e.key_lengths, 1.0 / std::sqrt(128.0), 1.0, INT32_MAX, INT32_MAX,
        1, e.packed_layout, 0, 0, e.same_as_input, e.row_max.tensor, e.row_sum.tensor, nullptr,
        e.output.tensor, &bytes, &executor));
    CHECK(Finish(aclnnFlashAttentionVarLenScoreV4, bytes, executor, e.device.stream));
    return e.PrintAndClose();
}
