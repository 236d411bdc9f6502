// FlashAttentionScoreGrad: six vendor functions behind one entry point.
#include <attncheck/candidate.h>

#include <tuple>

#include "properties/aclnn_adapter/device_call.h"
#include "properties/aclnn_adapter/flash_attention_variant.h"
#include "properties/aclnn_adapter/operators.h"

namespace attncheck::aclnn_adapter {
namespace {

using Args = attncheck_flash_attention_score_grad_args;

using Functions =
    FlashFunctions<FlashAttentionScoreGrad,
                   FlashAttentionScoreGradV2,
                   FlashAttentionUnpaddingScoreGrad,
                   FlashAttentionUnpaddingScoreGradV2,
                   FlashAttentionUnpaddingScoreGradV3,
                   FlashAttentionUnpaddingScoreGradV4>;

const Functions& functions() {
    static const Functions only{
        decltype(Functions::fixed)("aclnnFlashAttentionScoreGrad"),
        decltype(Functions::fixed_pse_types)("aclnnFlashAttentionScoreGradV2"),
        decltype(Functions::packed)("aclnnFlashAttentionUnpaddingScoreGrad"),
        decltype(Functions::packed_pse_types)("aclnnFlashAttentionUnpaddingScoreGradV2"),
        decltype(Functions::packed_ropes)("aclnnFlashAttentionUnpaddingScoreGradV3"),
        decltype(Functions::packed_layout)("aclnnFlashAttentionUnpaddingScoreGradV4")};
    return only;
}

int run(const Args& a, bool packed, FlashVariant variant) {
    DeviceCall call;
    const std::tuple query{call.tensor(a.query)}, key{call.tensor(a.key)};
    const std::tuple others{call.tensor(a.value),
                            call.tensor(a.dy),
                            call.tensor(a.pse_shift),
                            call.tensor(a.drop_mask),
                            call.tensor(a.padding_mask),
                            call.tensor(a.atten_mask),
                            call.tensor(a.softmax_max),
                            call.tensor(a.softmax_sum),
                            Tensor{nullptr},  // softmaxIn is reserved
                            call.tensor(a.attention_in),
                            call.array(a.prefix)};
    const std::tuple dq{call.tensor(a.dq)}, dk{call.tensor(a.dk)};
    const std::tuple dv{call.tensor(a.dv), Tensor{nullptr}};  // dpse is reserved
    const auto outputs = joined(dq, dk, dv);
    return run_flash_variant(a, call, functions(), packed, variant,
                             FlashLists{joined(query, key, others), outputs,
                                        [&] {
                                            return joined(query, std::tuple{call.tensor(a.query_rope)}, key,
                                                          std::tuple{call.tensor(a.key_rope)}, others);
                                        },
                                        [&] {
                                            return joined(dq, std::tuple{call.tensor(a.dq_rope)}, dk,
                                                          std::tuple{call.tensor(a.dk_rope)}, dv);
                                        },
                                        [&] { return joined(outputs, std::tuple{call.text(a.softmax_in_layout)}); }});
}

bool any_variant() { return functions().has_any(); }

const VendorOperator kOperator{"flash_attention_score_grad", any_variant};

}  // namespace
}  // namespace attncheck::aclnn_adapter

using namespace attncheck::aclnn_adapter;

extern "C" int attncheck_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* a) {
    const bool ropes = a->query_rope.data || a->key_rope.data;
    if (!ropes && (a->dq_rope.data || a->dk_rope.data)) return ATTNCHECK_DECLINED;
    const FlashNeeds needs = flash_needs(*a, ropes, a->softmax_in_layout);
    const FlashVariant variant = flash_variant(
        needs, [&](FlashVariant asked) { return functions().has(needs.packed, asked); });
    return variant == FlashVariant::none ? int{ATTNCHECK_DECLINED} : run(*a, needs.packed, variant);
}
