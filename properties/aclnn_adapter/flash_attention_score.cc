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

/// The parameters in runs that every variant has in the same order.
int run(const Args& a, bool packed, FlashVariant variant) {
    const Functions& f = functions();
    DeviceCall call;
    const auto all = [](auto... parts) { return std::tuple_cat(parts...); };
    const std::tuple query{call.tensor(a.query)}, key{call.tensor(a.key)};
    const std::tuple value_and_masks{call.tensor(a.value), call.tensor(a.real_shift),
                                     call.tensor(a.drop_mask), call.tensor(a.padding_mask),
                                     call.tensor(a.atten_mask)};
    const std::tuple prefix{call.array(a.prefix)};
    const std::tuple numbers = flash_numbers(a, call);
    const std::tuple pse_type{a.pse_type};
    const std::tuple outputs{call.tensor(a.softmax_max), call.tensor(a.softmax_sum),
                             Tensor{nullptr},  // softmaxOut is reserved
                             call.tensor(a.attention_out)};
    const auto inputs = all(query, key, value_and_masks, prefix);
    const auto starts = [&] {
        return std::tuple{call.array(a.q_start_idx), call.array(a.kv_start_idx)};
    };
    if (!packed)
        return variant == FlashVariant::plain
                   ? call.run_list(f.fixed, all(inputs, numbers, outputs))
                   : call.run_list(f.fixed_pse_types,
                                   all(inputs, starts(), numbers, pse_type, outputs));
    const std::tuple lengths{call.array(a.actual_seq_q_len), call.array(a.actual_seq_kv_len)};
    switch (variant) {
        case FlashVariant::pse_types:
            return call.run_list(f.packed_pse_types,
                                 all(inputs, lengths, starts(), numbers, pse_type, outputs));
        case FlashVariant::ropes:
            return call.run_list(f.packed_ropes,
                                 all(query, std::tuple{call.tensor(a.query_rope)}, key,
                                     std::tuple{call.tensor(a.key_rope)}, value_and_masks, prefix,
                                     lengths, starts(), numbers, pse_type, outputs));
        case FlashVariant::statistics_layout:
            return call.run_list(f.packed_layout,
                                 all(inputs, lengths, numbers,
                                     std::tuple{call.text(a.softmax_out_layout)}, outputs));
        default:
            return call.run_list(f.packed, all(inputs, lengths, numbers, outputs));
    }
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
