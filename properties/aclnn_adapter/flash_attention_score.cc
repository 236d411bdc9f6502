// FlashAttentionScore: six vendor functions behind one entry point.
#include <attncheck/candidate.h>

#include <tuple>

#include "properties/aclnn_adapter/device_call.h"
#include "properties/aclnn_adapter/flash_attention_variant.h"
#include "properties/aclnn_adapter/operators.h"

namespace attncheck::aclnn_adapter {
namespace {

using Args = attncheck_flash_attention_score_args;

using Functions =
    FlashFunctions<FlashAttentionScore,
                   FlashAttentionScoreV2,
                   FlashAttentionVarLenScore,
                   FlashAttentionVarLenScoreV2,
                   FlashAttentionVarLenScoreV3,
                   FlashAttentionVarLenScoreV4>;

const Functions& functions() {
    static const Functions only{
        decltype(Functions::fixed)("aclnnFlashAttentionScore"),
        decltype(Functions::fixed_pse_types)("aclnnFlashAttentionScoreV2"),
        decltype(Functions::packed)("aclnnFlashAttentionVarLenScore"),
        decltype(Functions::packed_pse_types)("aclnnFlashAttentionVarLenScoreV2"),
        decltype(Functions::packed_ropes)("aclnnFlashAttentionVarLenScoreV3"),
        decltype(Functions::packed_layout)("aclnnFlashAttentionVarLenScoreV4")};
    return only;
}

int run(const Args& a, bool packed, FlashVariant variant) {
    DeviceCall call;
    const std::tuple query{call.tensor(a.query)}, key{call.tensor(a.key)};
    const std::tuple others{call.tensor(a.value),     call.tensor(a.real_shift),   call.tensor(a.drop_mask),
                            call.tensor(a.padding_mask), call.tensor(a.atten_mask), call.array(a.prefix)};
    const std::tuple outputs{call.tensor(a.softmax_max), call.tensor(a.softmax_sum),
                             Tensor{nullptr},  // softmaxOut is reserved
                             call.tensor(a.attention_out)};
    return run_flash_variant(a, call, functions(), packed, variant,
                             FlashLists{joined(query, key, others), outputs,
                                        [&] {
                                            return joined(query, std::tuple{call.tensor(a.query_rope)}, key,
                                                          std::tuple{call.tensor(a.key_rope)}, others);
                                        },
                                        [&] { return outputs; },
                                        [&] { return joined(std::tuple{call.text(a.softmax_out_layout)}, outputs); }});
}

bool any_variant() { return functions().has_any(); }

const VendorOperator kOperator{"flash_attention_score", any_variant};

}  // namespace
}  // namespace attncheck::aclnn_adapter

using namespace attncheck::aclnn_adapter;

extern "C" int attncheck_flash_attention_score(const attncheck_flash_attention_score_args* a) {
    const FlashNeeds needs =
        flash_needs(*a, a->query_rope.data || a->key_rope.data, a->softmax_out_layout);
    const FlashVariant variant = flash_variant(
        needs, [&](FlashVariant asked) { return functions().has(needs.packed, asked); });
    return variant == FlashVariant::none ? int{ATTNCHECK_DECLINED} : run(*a, needs.packed, variant);
}
