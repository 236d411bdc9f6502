/* NsaSelectedAttentionGrad: gradients of NsaSelectedAttention with respect to query, key and value.
 *
 *   P_j = exp(S_j - softmaxMax) / softmaxSum,  dP_j = <dO, v_j>,  dS_j = P_j (dP_j - <dO, O>)
 *   dq = scaleValue * sum dS_j k_j,  dk_j = scaleValue * sum dS_j q,  dv_j = sum P_j dO
 *
 * The statistics and attentionOut are those of the forward; they are used as given.
 *
 * Two phases: the first checks the arguments, copies descriptors, numbers, strings and arrays, and
 * gives the bytes of workspace and an executor; the second uses the executor up and queues the work
 * on the stream. After a failed first phase the executor is NULL and the size 0. Data of tensors
 * is read when the work runs, not before. Status: 0; 161001 for what is absent, 161002 for what
 * breaks a documented constraint; aclGetRecentErrMsg has the text. */
#ifndef ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_GRAD_H
#define ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_GRAD_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shapes as in the forward; attentionOutGrad like attentionOut, dqOut, dkOut, dvOut like query,
 * key, value. The mask comes after the lengths, and headNum after the block's size and count. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaSelectedAttentionGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attentionOut, const aclTensor* attentionOutGrad, const aclTensor* softmaxMax,
    const aclTensor* softmaxSum, const aclTensor* topkIndices,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclTensor* attenMaskOptional, double scaleValue, int64_t selectedBlockSize,
    int64_t selectedBlockCount, int64_t headNum, char* inputLayout, int64_t sparseMode,
    const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaSelectedAttentionGrad(void* workspace,
                                                              uint64_t workspaceSize,
                                                              aclOpExecutor* executor,
                                                              aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_GRAD_H */
