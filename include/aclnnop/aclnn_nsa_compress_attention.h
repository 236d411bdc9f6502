/* NsaCompressAttention: attention over compressed keys, and the selection blocks it points to.
 *
 *   P = softmax of scaleValue * <q, k_i> over the visible compressed keys,  O = sum P_i v_i
 *   score_j = sum over the heads of a group and the keys of selection block j of their P
 *   topkIndices = the selectBlockCount best j, in descending order, smaller j first among equals
 *
 * Two phases: the first checks the arguments, copies descriptors, numbers, strings and arrays, and
 * gives the bytes of workspace and an executor; the second uses the executor up and queues the work
 * on the stream. After a failed first phase the executor is NULL and the size 0. Data of tensors
 * is read when the work runs, not before. Status: 0; 161001 for what is absent, 161002 for what
 * breaks a documented constraint; aclGetRecentErrMsg has the text. */
#ifndef ACLNNOP_ACLNN_NSA_COMPRESS_ATTENTION_H
#define ACLNNOP_ACLNN_NSA_COMPRESS_ATTENTION_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* query [T1,N1,D], key [C,N2,D], value [C,N2,Dv]; masks bool or uint8 or NULL: attenMaskOptional
 * [max Sq, max Cmp] hides, topkMaskOptional [max Sq, max Sel] forces a block. All three cumulative
 * length arrays are required. softmaxMaxOut, softmaxSumOut float [T1,N1,8], per sequence in the
 * order heads, queries; attentionOutOut [T1,N1,Dv]; topkIndicesOut int32
 * [T1,N2,selectBlockCount]. sparseMode 0 or 1. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompressAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attenMaskOptional, const aclTensor* topkMaskOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualCmpSeqKvLenOptional,
    const aclIntArray* actualSelSeqKvLenOptional, double scaleValue, int64_t headNum,
    char* inputLayout, int64_t sparseMode, int64_t compressBlockSize, int64_t compressStride,
    int64_t selectBlockSize, int64_t selectBlockCount, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* attentionOutOut,
    const aclTensor* topkIndicesOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompressAttention(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor,
                                                          aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACLNNOP_ACLNN_NSA_COMPRESS_ATTENTION_H */
