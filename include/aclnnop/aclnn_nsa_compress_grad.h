/* NsaCompressGrad: gradients of NsaCompress with respect to its input and its weight.
 *
 *   inputGrad[t, n, c] = sum over windows j and rows r that meet in token t of
 *                        weight[r, n] * outputGrad[j, n, c]
 *   weightGrad[r, n]   = sum over windows j and channels c of
 *                        outputGrad[j, n, c] * input[a_b + j * stride + r, n, c]
 *
 * Two phases: the first checks the arguments, copies descriptors, numbers, strings and arrays, and
 * gives the bytes of workspace and an executor; the second uses the executor up and queues the work
 * on the stream. After a failed first phase the executor is NULL and the size 0. Data of tensors
 * is read when the work runs, not before. Status: 0; 161001 for what is absent, 161002 for what
 * breaks a documented constraint; aclGetRecentErrMsg has the text. */
#ifndef ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H
#define ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* outputGrad [C,N,D], input and inputGradOut [T,N,D], weight and weightGradOut
 * [compressBlockSize,N]. Lengths as in the forward; NULL means one sequence of T tokens. A NULL
 * layout means "TND". Here stride < block. The layout comes after the numbers, not before them. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(
    const aclTensor* outputGrad, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* actSeqLenOptionalOptional, int64_t compressBlockSize, int64_t compressStride,
    int64_t actSeqLenType, char* layoutOptionalOptional, const aclTensor* inputGradOut,
    const aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t workspaceSize,
                                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H */
