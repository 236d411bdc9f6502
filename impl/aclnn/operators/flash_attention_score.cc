#include "aclnnop/aclnn_flash_attention_score.h"
#include "impl/aclnn/operators/flash_attention_form.h"
#include "impl/operators/flash_attention/validate.h"

/// FlashAttentionScore and its variants (flash_attention.md 1.1): every variant lists the
/// parameters it has, in its order; what it lacks keeps the default below (flash_attention.md 1.3).
namespace attncheck::aclnn {
namespace {

using Args = attncheck_flash_attention_score_args;

constexpr Operator<Args> kOperator{impl::validate_flash_attention_score,
                                   attncheck_flash_attention_score};

// The parameters of all variants, named and ordered as in their lists, less the reserved ones.
struct Parameters {
    const char* api;
    Form form;
    const aclTensor* query;
    const aclTensor* queryRope = nullptr;
    const aclTensor* key;
    const aclTensor* keyRope = nullptr;
    const aclTensor* value;
    const aclTensor* realShiftOptional;
    const aclTensor* dropMaskOptional;
    const aclTensor* paddingMaskOptional;
    const aclTensor* attenMaskOptional;
    const aclIntArray* prefixOptional;
    const aclIntArray* actualSeqQLenOptional = nullptr;
    const aclIntArray* actualSeqKvLenOptional = nullptr;
    const aclIntArray* qStartIdxOptional = nullptr;
    const aclIntArray* kvStartIdxOptional = nullptr;
    double scaleValue;
    double keepProb;
    std::int64_t preTokens;
    std::int64_t nextTokens;
    std::int64_t headNum;
    const char* inputLayout;
    std::int64_t innerPrecise;
    std::int64_t sparseMode;
    std::int64_t pseType = 1;
    const char* softmaxOutLayout = "";
    const aclTensor* softmaxMaxOut;
    const aclTensor* softmaxSumOut;
    const aclTensor* attentionOutOut;
};

void map_parameters(const Parameters& p, MappedCall<Args>& call) {
    call.input<&Args::query>("query", p.query);
    call.input<&Args::query_rope>("queryRope", p.queryRope);
    call.input<&Args::key>("key", p.key);
    call.input<&Args::key_rope>("keyRope", p.keyRope);
    call.input<&Args::value>("value", p.value);
    call.input<&Args::real_shift>("realShiftOptional", p.realShiftOptional);
    call.input<&Args::drop_mask>("dropMaskOptional", p.dropMaskOptional);
    call.input<&Args::padding_mask>("paddingMaskOptional", p.paddingMaskOptional);
    call.input<&Args::atten_mask>("attenMaskOptional", p.attenMaskOptional);
    call.array<&Args::prefix>("prefixOptional", p.prefixOptional);
    if (p.form != Form::kPadded) {
        call.array<&Args::actual_seq_q_len>("actualSeqQLenOptional", p.actualSeqQLenOptional);
        call.array<&Args::actual_seq_kv_len>("actualSeqKvLenOptional", p.actualSeqKvLenOptional);
    }
    call.array<&Args::q_start_idx>("qStartIdxOptional", p.qStartIdxOptional);
    call.array<&Args::kv_start_idx>("kvStartIdxOptional", p.kvStartIdxOptional);
    call.real<&Args::scale_value>("scaleValue", p.scaleValue);
    call.real<&Args::keep_prob>("keepProb", p.keepProb);
    call.integer<&Args::pre_tokens>("preTokens", p.preTokens);
    call.integer<&Args::next_tokens>("nextTokens", p.nextTokens);
    call.integer<&Args::head_num>("headNum", p.headNum);
    call.text<&Args::input_layout>("inputLayout", p.inputLayout);
    call.integer<&Args::inner_precise>("innerPrecise", p.innerPrecise);
    call.integer<&Args::sparse_mode>("sparseMode", p.sparseMode);
    call.integer<&Args::pse_type>("pseType", p.pseType);
    call.text<&Args::softmax_out_layout>("softmaxOutLayout", p.softmaxOutLayout);
    call.output<&Args::softmax_max>("softmaxMaxOut", p.softmaxMaxOut);
    call.output<&Args::softmax_sum>("softmaxSumOut", p.softmaxSumOut);
    call.output<&Args::attention_out>("attentionOutOut", p.attentionOutOut);
    require_layout_of(p.form, p.inputLayout, call);
    if (p.form == Form::kPackedWithRope) {
        call.require("queryRope", p.queryRope);
        call.require("keyRope", p.keyRope);
    }
}

aclnnStatus prepare(const Parameters& parameters, std::uint64_t* workspace_size,
                    aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Args>& call) { map_parameters(parameters, call); };
    return first_phase(parameters.api, kOperator, map, workspace_size, executor);
}

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclnnStatus aclnnFlashAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    const aclTensor* /*softmaxOutOut*/, const aclTensor* attentionOutOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionScore",
            .form = Form::kPadded,
            .query = query,
            .key = key,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* /*softmaxOutOut*/,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionScoreV2",
            .form = Form::kPadded,
            .query = query,
            .key = key,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .qStartIdxOptional = qStartIdxOptional,
            .kvStartIdxOptional = kvStartIdxOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .pseType = pseType,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    const aclTensor* /*softmaxOutOut*/, const aclTensor* attentionOutOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionVarLenScore",
            .form = Form::kPacked,
            .query = query,
            .key = key,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .actualSeqQLenOptional = actualSeqQLenOptional,
            .actualSeqKvLenOptional = actualSeqKvLenOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* /*softmaxOutOut*/,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionVarLenScoreV2",
            .form = Form::kPacked,
            .query = query,
            .key = key,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .actualSeqQLenOptional = actualSeqQLenOptional,
            .actualSeqKvLenOptional = actualSeqKvLenOptional,
            .qStartIdxOptional = qStartIdxOptional,
            .kvStartIdxOptional = kvStartIdxOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .pseType = pseType,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* key,
    const aclTensor* keyRope, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* /*softmaxOutOut*/,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionVarLenScoreV3",
            .form = Form::kPackedWithRope,
            .query = query,
            .queryRope = queryRope,
            .key = key,
            .keyRope = keyRope,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .actualSeqQLenOptional = actualSeqQLenOptional,
            .actualSeqKvLenOptional = actualSeqKvLenOptional,
            .qStartIdxOptional = qStartIdxOptional,
            .kvStartIdxOptional = kvStartIdxOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .pseType = pseType,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, char* softmaxOutLayout, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* /*softmaxOutOut*/,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionVarLenScoreV4",
            .form = Form::kPacked,
            .query = query,
            .key = key,
            .value = value,
            .realShiftOptional = realShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .prefixOptional = prefixOptional,
            .actualSeqQLenOptional = actualSeqQLenOptional,
            .actualSeqKvLenOptional = actualSeqKvLenOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .softmaxOutLayout = softmaxOutLayout,
            .softmaxMaxOut = softmaxMaxOut,
            .softmaxSumOut = softmaxSumOut,
            .attentionOutOut = attentionOutOut,
        },
        workspaceSize, executor);
}

}  // extern "C"
