/* NsaCompress: every block of keys becomes one weighted sum.
 *
 *   output[o_b + j, n, c] = sum over r < block of input[a_b + j * stride + r, n, c] * weight[r, n]
 *
 * a_b, o_b: first token and first block of sequence b; T tokens, N heads, C blocks of all
 * sequences. fp16 or bf16 throughout.
 *
 * Two phases: the first checks the arguments, copies descriptors, numbers, strings and arrays, and
 * gives the bytes of workspace and an executor; the second uses the executor up and queues the work
 * on the stream. After a failed first phase the executor is NULL and the size 0. Data of tensors
 * is read when the work runs, not before. Status: 0; 161001 for what is absent, 161002 for what
 * breaks a documented constraint; aclGetRecentErrMsg has the text. */
#ifndef ACLNNOP_ACLNN_NSA_COMPRESS_H
#define ACLNNOP_ACLNN_NSA_COMPRESS_H

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* input [T,N,D], weight [compressBlockSize,N], output [C,N,D]. actSeqLenOptional: cumulative
 * lengths, required in spite of its name. layoutOptional "TND", actSeqLenType 0; block and stride
 * are multiples of 16, stride <= block <= 128. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompressGetWorkspaceSize(
    const aclTensor* input, const aclTensor* weight, const aclIntArray* actSeqLenOptional,
    char* layoutOptional, int64_t compressBlockSize, int64_t compressStride, int64_t actSeqLenType,
    aclTensor* output, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNsaCompress(void* workspace, uint64_t workspaceSize,
                                                 aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACLNNOP_ACLNN_NSA_COMPRESS_H */
