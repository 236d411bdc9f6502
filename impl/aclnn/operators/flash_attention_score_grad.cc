#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "impl/aclnn/operators/flash_attention_form.h"
#include "impl/operators/flash_attention/validate.h"

/// FlashAttentionScoreGrad and its variants (flash_attention.md 1.2): every variant lists the
/// parameters it has, in its order; what it lacks keeps the default below (flash_attention.md 1.3).
namespace attncheck::aclnn {
namespace {

using Args = attncheck_flash_attention_score_grad_args;

constexpr Operator<Args> kOperator{impl::validate_flash_attention_score_grad,
                                   attncheck_flash_attention_score_grad};

// The parameters of all variants, named and ordered as in their lists, less the reserved ones.
struct Parameters {
    const char* api;
    Form form;
    const aclTensor* query;
    const aclTensor* queryRope = nullptr;
    const aclTensor* keyIn;
    const aclTensor* keyInRope = nullptr;
    const aclTensor* value;
    const aclTensor* dy;
    const aclTensor* pseShiftOptional;
    const aclTensor* dropMaskOptional;
    const aclTensor* paddingMaskOptional;
    const aclTensor* attenMaskOptional;
    const aclTensor* softmaxMaxOptional;
    const aclTensor* softmaxSumOptional;
    const aclTensor* attentionInOptional;
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
    const aclTensor* dqOut;
    const aclTensor* dqRopeOut = nullptr;
    const aclTensor* dkOut;
    const aclTensor* dkRopeOut = nullptr;
    const aclTensor* dvOut;
    const char* softmaxInLayout = "";
};

void map_parameters(const Parameters& p, MappedCall<Args>& call) {
    call.input<&Args::query>("query", p.query);
    call.input<&Args::query_rope>("queryRope", p.queryRope);
    call.input<&Args::key>("keyIn", p.keyIn);
    call.input<&Args::key_rope>("keyInRope", p.keyInRope);
    call.input<&Args::value>("value", p.value);
    call.input<&Args::dy>("dy", p.dy);
    call.input<&Args::pse_shift>("pseShiftOptional", p.pseShiftOptional);
    call.input<&Args::drop_mask>("dropMaskOptional", p.dropMaskOptional);
    call.input<&Args::padding_mask>("paddingMaskOptional", p.paddingMaskOptional);
    call.input<&Args::atten_mask>("attenMaskOptional", p.attenMaskOptional);
    call.input<&Args::softmax_max>("softmaxMaxOptional", p.softmaxMaxOptional);
    call.input<&Args::softmax_sum>("softmaxSumOptional", p.softmaxSumOptional);
    call.input<&Args::attention_in>("attentionInOptional", p.attentionInOptional);
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
    call.output<&Args::dq>("dqOut", p.dqOut);
    call.output<&Args::dq_rope>("dqRopeOut", p.dqRopeOut);
    call.output<&Args::dk>("dkOut", p.dkOut);
    call.output<&Args::dk_rope>("dkRopeOut", p.dkRopeOut);
    call.output<&Args::dv>("dvOut", p.dvOut);
    call.text<&Args::softmax_in_layout>("softmaxInLayout", p.softmaxInLayout);
    require_layout_of(p.form, p.inputLayout, call);
    if (p.form == Form::kPackedWithRope) {
        call.require("queryRope", p.queryRope);
        call.require("keyInRope", p.keyInRope);
        call.require("dqRopeOut", p.dqRopeOut);
        call.require("dkRopeOut", p.dkRopeOut);
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

aclnnStatus aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* /*dpseOut*/, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionScoreGrad",
            .form = Form::kPadded,
            .query = query,
            .keyIn = keyIn,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
            .prefixOptional = prefixOptional,
            .scaleValue = scaleValue,
            .keepProb = keepProb,
            .preTokens = preTokens,
            .nextTokens = nextTokens,
            .headNum = headNum,
            .inputLayout = inputLayout,
            .innerPrecise = innerPrecise,
            .sparseMode = sparseMode,
            .dqOut = dqOut,
            .dkOut = dkOut,
            .dvOut = dvOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* /*dpseOut*/, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionScoreGradV2",
            .form = Form::kPadded,
            .query = query,
            .keyIn = keyIn,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
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
            .dqOut = dqOut,
            .dkOut = dkOut,
            .dvOut = dvOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* /*dpseOut*/, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionUnpaddingScoreGrad",
            .form = Form::kPacked,
            .query = query,
            .keyIn = keyIn,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
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
            .dqOut = dqOut,
            .dkOut = dkOut,
            .dvOut = dvOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* /*dpseOut*/, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionUnpaddingScoreGradV2",
            .form = Form::kPacked,
            .query = query,
            .keyIn = keyIn,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
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
            .dqOut = dqOut,
            .dkOut = dkOut,
            .dvOut = dvOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* keyIn,
    const aclTensor* keyInRope, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dqRopeOut,
    const aclTensor* dkOut, const aclTensor* dkRopeOut, const aclTensor* dvOut,
    const aclTensor* /*dpseOut*/, uint64_t* workspaceSize, aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionUnpaddingScoreGradV3",
            .form = Form::kPackedWithRope,
            .query = query,
            .queryRope = queryRope,
            .keyIn = keyIn,
            .keyInRope = keyInRope,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
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
            .dqOut = dqOut,
            .dqRopeOut = dqRopeOut,
            .dkOut = dkOut,
            .dkRopeOut = dkRopeOut,
            .dvOut = dvOut,
        },
        workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* /*softmaxInOptional*/, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* /*dpseOut*/, char* softmaxInLayout, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
    return prepare(
        {
            .api = "aclnnFlashAttentionUnpaddingScoreGradV4",
            .form = Form::kPacked,
            .query = query,
            .keyIn = keyIn,
            .value = value,
            .dy = dy,
            .pseShiftOptional = pseShiftOptional,
            .dropMaskOptional = dropMaskOptional,
            .paddingMaskOptional = paddingMaskOptional,
            .attenMaskOptional = attenMaskOptional,
            .softmaxMaxOptional = softmaxMaxOptional,
            .softmaxSumOptional = softmaxSumOptional,
            .attentionInOptional = attentionInOptional,
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
            .dqOut = dqOut,
            .dkOut = dkOut,
            .dvOut = dvOut,
            .softmaxInLayout = softmaxInLayout,
        },
        workspaceSize, executor);
}

}  // extern "C"
