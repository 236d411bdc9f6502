#include "aclnnop/aclnn_nsa_compress_attention.h"
#include "impl/aclnn/operators/first_phase.h"
#include "impl/operators/nsa_compress_attention/validate.h"

/// NsaCompressAttention (nsa.md 6.1).
namespace attncheck::aclnn {
namespace {

using Args = attncheck_nsa_compress_attention_args;

constexpr Operator<Args> kOperator{impl::validate_nsa_compress_attention,
                                   attncheck_nsa_compress_attention};

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclnnStatus aclnnNsaCompressAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attenMaskOptional, const aclTensor* topkMaskOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualCmpSeqKvLenOptional,
    const aclIntArray* actualSelSeqKvLenOptional, double scaleValue, int64_t headNum,
    char* inputLayout, int64_t sparseMode, int64_t compressBlockSize, int64_t compressStride,
    int64_t selectBlockSize, int64_t selectBlockCount, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* attentionOutOut,
    const aclTensor* topkIndicesOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Args>& call) {
        call.input<&Args::query>("query", query);
        call.input<&Args::key>("key", key);
        call.input<&Args::value>("value", value);
        call.input<&Args::atten_mask>("attenMaskOptional", attenMaskOptional);
        call.input<&Args::topk_mask>("topkMaskOptional", topkMaskOptional);
        call.array<&Args::actual_seq_q_len>("actualSeqQLenOptional", actualSeqQLenOptional);
        call.array<&Args::actual_cmp_seq_kv_len>("actualCmpSeqKvLenOptional",
                                                 actualCmpSeqKvLenOptional);
        call.array<&Args::actual_sel_seq_kv_len>("actualSelSeqKvLenOptional",
                                                 actualSelSeqKvLenOptional);
        call.real<&Args::scale_value>("scaleValue", scaleValue);
        call.integer<&Args::head_num>("headNum", headNum);
        call.text<&Args::input_layout>("inputLayout", inputLayout);
        call.integer<&Args::sparse_mode>("sparseMode", sparseMode);
        call.integer<&Args::compress_block_size>("compressBlockSize", compressBlockSize);
        call.integer<&Args::compress_stride>("compressStride", compressStride);
        call.integer<&Args::select_block_size>("selectBlockSize", selectBlockSize);
        call.integer<&Args::select_block_count>("selectBlockCount", selectBlockCount);
        call.output<&Args::softmax_max>("softmaxMaxOut", softmaxMaxOut);
        call.output<&Args::softmax_sum>("softmaxSumOut", softmaxSumOut);
        call.output<&Args::attention_out>("attentionOutOut", attentionOutOut);
        call.output<&Args::topk_indices>("topkIndicesOut", topkIndicesOut);
    };
    return first_phase("aclnnNsaCompressAttention", kOperator, map, workspaceSize, executor);
}

aclnnStatus aclnnNsaCompressAttention(void* workspace, uint64_t workspaceSize,
                                      aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnNsaCompressAttention", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
