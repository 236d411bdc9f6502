/* NsaSelectedAttention: attention of every query over the blocks of keys listed for it.
 *
 *   S_j = scaleValue * <q, k_j>,  P = softmax of S over the visible keys of the listed blocks,
 *   attentionOut = sum P_j v_j;  a block listed twice gives its keys twice.
 *
 * Two phases: the first checks the arguments, copies descriptors, numbers, strings and arrays, and
 * gives the bytes of workspace and an executor; the second uses the executor up and queues the work
 * on the stream. After a failed first phase the executor is NULL and the size 0. Data of tensors
 * is read when the work runs, not before. Status: 0; 161001 for what is absent, 161002 for what
 * breaks a documented constraint; aclGetRecentErrMsg has the text. */
#ifndef ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_H
#define ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* query [T1,N1,D], key [T2,N2,D], value [T2,N2,Dv], topkIndices int32 [T1,N2,selectedBlockCount]:
 * block numbers inside the query's sequence. softmaxMaxOut, softmaxSumOut float [T1,N1,8] (eight
 * copies), attentionOut [T1,N1,Dv]. Cumulative lengths are required. With a mask, sparseMode 2
 * shows keys up to the query's position and 0 reads the mask; without one everything is visible.
 * An index out of range is found when the work runs. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaSelectedAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* topkIndices, const aclTensor* attenMaskOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    double scaleValue, int64_t headNum, char* inputLayout, int64_t sparseMode,
    int64_t selectedBlockSize, int64_t selectedBlockCount, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* attentionOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaSelectedAttention(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor,
                                                          aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACLNNOP_ACLNN_NSA_SELECTED_ATTENTION_H */
