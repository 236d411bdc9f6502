#include "aclnnop/aclnn_nsa_selected_attention.h"
#include "aclnnop/aclnn_nsa_selected_attention_grad.h"
#include "impl/aclnn/operators/first_phase.h"
#include "impl/operators/nsa_selected_attention/validate.h"

/// NsaSelectedAttention and its gradient (nsa.md 4.1, 5.1). The forward has the mask before the
/// lengths and headNum before the block's numbers, the gradient the other way round.
namespace attncheck::aclnn {
namespace {

using Forward = attncheck_nsa_selected_attention_args;
using Gradient = attncheck_nsa_selected_attention_grad_args;

// Indices are data: work that is queued, or not even queued, may be going to write them. So the
// first phase judges the call with block 0, which is legal in every sequence that has keys, in
// their place; the operator judges the indices themselves before it computes anything.
template <class Args, impl::MaybeRejection (*Validate)(const Args*)>
impl::MaybeRejection validate_without_indices(const Args* args) {
    static std::int32_t first_block = 0;
    Args judged = *args;
    if (judged.topk_indices.data != nullptr) judged.topk_indices.data = &first_block;
    for (std::int64_t& stride : judged.topk_indices.strides) stride = 0;
    return Validate(&judged);
}

constexpr Operator<Forward> kForward{
    validate_without_indices<Forward, impl::validate_nsa_selected_attention>,
    attncheck_nsa_selected_attention};
constexpr Operator<Gradient> kGradient{
    validate_without_indices<Gradient, impl::validate_nsa_selected_attention_grad>,
    attncheck_nsa_selected_attention_grad};

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclnnStatus aclnnNsaSelectedAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* topkIndices, const aclTensor* attenMaskOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    double scaleValue, int64_t headNum, char* inputLayout, int64_t sparseMode,
    int64_t selectedBlockSize, int64_t selectedBlockCount, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* attentionOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Forward>& call) {
        call.input<&Forward::query>("query", query);
        call.input<&Forward::key>("key", key);
        call.input<&Forward::value>("value", value);
        call.input<&Forward::topk_indices>("topkIndices", topkIndices);
        call.input<&Forward::atten_mask>("attenMaskOptional", attenMaskOptional);
        call.array<&Forward::actual_seq_q_len>("actualSeqQLenOptional", actualSeqQLenOptional);
        call.array<&Forward::actual_seq_kv_len>("actualSeqKvLenOptional", actualSeqKvLenOptional);
        call.real<&Forward::scale_value>("scaleValue", scaleValue);
        call.integer<&Forward::head_num>("headNum", headNum);
        call.text<&Forward::input_layout>("inputLayout", inputLayout);
        call.integer<&Forward::sparse_mode>("sparseMode", sparseMode);
        call.integer<&Forward::selected_block_size>("selectedBlockSize", selectedBlockSize);
        call.integer<&Forward::selected_block_count>("selectedBlockCount", selectedBlockCount);
        call.output<&Forward::softmax_max>("softmaxMaxOut", softmaxMaxOut);
        call.output<&Forward::softmax_sum>("softmaxSumOut", softmaxSumOut);
        call.output<&Forward::attention_out>("attentionOut", attentionOut);
    };
    return first_phase("aclnnNsaSelectedAttention", kForward, map, workspaceSize, executor);
}

aclnnStatus aclnnNsaSelectedAttention(void* workspace, uint64_t workspaceSize,
                                      aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnNsaSelectedAttention", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnNsaSelectedAttentionGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attentionOut, const aclTensor* attentionOutGrad, const aclTensor* softmaxMax,
    const aclTensor* softmaxSum, const aclTensor* topkIndices,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclTensor* attenMaskOptional, double scaleValue, int64_t selectedBlockSize,
    int64_t selectedBlockCount, int64_t headNum, char* inputLayout, int64_t sparseMode,
    const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Gradient>& call) {
        call.input<&Gradient::query>("query", query);
        call.input<&Gradient::key>("key", key);
        call.input<&Gradient::value>("value", value);
        call.input<&Gradient::attention_out>("attentionOut", attentionOut);
        call.input<&Gradient::attention_out_grad>("attentionOutGrad", attentionOutGrad);
        call.input<&Gradient::softmax_max>("softmaxMax", softmaxMax);
        call.input<&Gradient::softmax_sum>("softmaxSum", softmaxSum);
        call.input<&Gradient::topk_indices>("topkIndices", topkIndices);
        call.array<&Gradient::actual_seq_q_len>("actualSeqQLenOptional", actualSeqQLenOptional);
        call.array<&Gradient::actual_seq_kv_len>("actualSeqKvLenOptional", actualSeqKvLenOptional);
        call.input<&Gradient::atten_mask>("attenMaskOptional", attenMaskOptional);
        call.real<&Gradient::scale_value>("scaleValue", scaleValue);
        call.integer<&Gradient::selected_block_size>("selectedBlockSize", selectedBlockSize);
        call.integer<&Gradient::selected_block_count>("selectedBlockCount", selectedBlockCount);
        call.integer<&Gradient::head_num>("headNum", headNum);
        call.text<&Gradient::input_layout>("inputLayout", inputLayout);
        call.integer<&Gradient::sparse_mode>("sparseMode", sparseMode);
        call.output<&Gradient::dq>("dqOut", dqOut);
        call.output<&Gradient::dk>("dkOut", dkOut);
        call.output<&Gradient::dv>("dvOut", dvOut);
    };
    return first_phase("aclnnNsaSelectedAttentionGrad", kGradient, map, workspaceSize, executor);
}

aclnnStatus aclnnNsaSelectedAttentionGrad(void* workspace, uint64_t workspaceSize,
                                          aclOpExecutor* executor, aclrtStream stream) {
    return launch_executor("aclnnNsaSelectedAttentionGrad", workspace, workspaceSize, executor,
                           stream);
}

}  // extern "C"
