#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "impl/aclnn/executor.h"

/// The second phases of FlashAttention: every variant runs what its first phase has prepared.
using attncheck::aclnn::launch_executor;

extern "C" {

aclnnStatus aclnnFlashAttentionScore(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionScore", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionScoreV2(void* workspace, uint64_t workspaceSize,
                                       aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionScoreV2", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionVarLenScore(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionVarLenScore", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV2(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionVarLenScoreV2", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV3(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionVarLenScoreV3", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV4(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionVarLenScoreV4", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionScoreGrad(void* workspace, uint64_t workspaceSize,
                                         aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionScoreGrad", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionScoreGradV2(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionScoreGradV2", workspace, workspaceSize, executor,
                           stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGrad(void* workspace, uint64_t workspaceSize,
                                                  aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionUnpaddingScoreGrad", workspace, workspaceSize,
                           executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV2(void* workspace, uint64_t workspaceSize,
                                                    aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionUnpaddingScoreGradV2", workspace, workspaceSize,
                           executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV3(void* workspace, uint64_t workspaceSize,
                                                    aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionUnpaddingScoreGradV3", workspace, workspaceSize,
                           executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV4(void* workspace, uint64_t workspaceSize,
                                                    aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnFlashAttentionUnpaddingScoreGradV4", workspace, workspaceSize,
                           executor, stream);
}

}  // extern "C"
