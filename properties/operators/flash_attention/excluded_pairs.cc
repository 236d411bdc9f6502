// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& flash_attention_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"flash_attention_score", "fp16", "bf16 fp32 rope"},
        {"flash_attention_score", "bf16", "fp32"},
        {"flash_attention_score", "fp32", "rope"},
        {"flash_attention_score", "no_mask", "rope sparse:0 sparse:1 sparse:2 sparse:3 sparse:4 sparse:5 sparse:6 sparse:7 sparse:8 mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "more_queries", "sparse:7"},
        {"flash_attention_score", "leading_empty", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score", "trailing_empty", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score", "several_sequences", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score", "several_batches", "rope beyond_last same_as_input layout:TND sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "rope", "start_indices layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5 sparse:6 pse:plain pse:one_batch pse:one_row pse:one_batch_row pse:flat_keys pse:flat_pairs pse:slopes pse:batch_slopes pse_type:0 pse_type:1 pse_type:2 pse_type:3 drop:random drop:keep_all drop:drop_all"},
        {"flash_attention_score", "beyond_last", "layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score", "same_as_input", "layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score", "start_indices", "sparse:7"},
        {"flash_attention_score", "layout:BSH", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "layout:BSND", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "layout:TND", "sparse:5"},
        {"flash_attention_score", "layout:SBH", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "layout:BNSD", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "sparse:1", "tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "sparse:2", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "sparse:3", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "sparse:4", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed"},
        {"flash_attention_score", "sparse:5", "mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score", "sparse:6", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "sparse:7", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited pse:plain pse:one_batch pse:one_row pse:one_batch_row pse:flat_keys pse:flat_pairs pse:slopes pse:batch_slopes pse_type:0 pse_type:1 pse_type:2 pse_type:3"},
        {"flash_attention_score", "sparse:8", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score", "pse:plain", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:one_batch", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:one_row", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:one_batch_row", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:flat_keys", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:flat_pairs", "pse_type:2 pse_type:3"},
        {"flash_attention_score", "pse:slopes", "pse_type:0 pse_type:1"},
        {"flash_attention_score", "pse:batch_slopes", "pse_type:0 pse_type:1"},
        {"flash_attention_score_grad", "fp16", "bf16 fp32 rope"},
        {"flash_attention_score_grad", "bf16", "fp32"},
        {"flash_attention_score_grad", "fp32", "rope"},
        {"flash_attention_score_grad", "no_mask", "rope sparse:0 sparse:1 sparse:2 sparse:3 sparse:4 sparse:5 sparse:6 sparse:7 sparse:8 mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "more_queries", "sparse:7"},
        {"flash_attention_score_grad", "leading_empty", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score_grad", "trailing_empty", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score_grad", "several_sequences", "several_batches layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score_grad", "several_batches", "rope beyond_last same_as_input layout:TND sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "rope", "start_indices layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5 sparse:6 pse:plain pse:one_batch pse:one_row pse:one_batch_row pse:flat_keys pse:flat_pairs pse:slopes pse:batch_slopes pse_type:0 pse_type:1 pse_type:2 pse_type:3 drop:random drop:keep_all drop:drop_all"},
        {"flash_attention_score_grad", "beyond_last", "layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score_grad", "same_as_input", "layout:BSH layout:BSND layout:SBH layout:BNSD sparse:5"},
        {"flash_attention_score_grad", "start_indices", "sparse:7"},
        {"flash_attention_score_grad", "layout:BSH", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "layout:BSND", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "layout:TND", "sparse:5"},
        {"flash_attention_score_grad", "layout:SBH", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "layout:BNSD", "sparse:7 sparse:8 mask_form:packed pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "sparse:1", "tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "sparse:2", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "sparse:3", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "sparse:4", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed"},
        {"flash_attention_score_grad", "sparse:5", "mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited pse:flat_keys pse:flat_pairs"},
        {"flash_attention_score_grad", "sparse:6", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "sparse:7", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited pse:plain pse:one_batch pse:one_row pse:one_batch_row pse:flat_keys pse:flat_pairs pse:slopes pse:batch_slopes pse_type:0 pse_type:1 pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "sparse:8", "mask_form:single mask_form:one mask_form:batch mask_form:head mask_form:packed tokens:given tokens:pre_negative tokens:next_negative tokens:pre_unlimited tokens:next_unlimited tokens:unlimited"},
        {"flash_attention_score_grad", "pse:plain", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:one_batch", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:one_row", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:one_batch_row", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:flat_keys", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:flat_pairs", "pse_type:2 pse_type:3"},
        {"flash_attention_score_grad", "pse:slopes", "pse_type:0 pse_type:1"},
        {"flash_attention_score_grad", "pse:batch_slopes", "pse_type:0 pse_type:1"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
