// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& nsa_selected_attention_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"nsa_selected_attention", "fp16", "bf16"},
        {"nsa_selected_attention", "group_above_16", "group:1 group:2 group:3 group:5 group:8 group:16"},
        {"nsa_selected_attention", "odd_group", "group:1 group:2 group:8 group:16 group:32"},
        {"nsa_selected_attention", "causal", "mask_contents causal_mode_without_mask"},
        {"nsa_selected_attention", "mask_contents", "causal_mode_without_mask mask_of_other_size diagonal_block_twice"},
        {"nsa_selected_attention", "causal_mode_without_mask", "mask_of_other_size diagonal_block_twice"},
        {"nsa_selected_attention", "lists_of_heads_differ", "topk:canonical"},
        {"nsa_selected_attention", "unsorted_list", "topk:canonical topk:ascending topk:same"},
        {"nsa_selected_attention_grad", "fp16", "bf16"},
        {"nsa_selected_attention_grad", "group_above_16", "group:1 group:2 group:3 group:5 group:8 group:16"},
        {"nsa_selected_attention_grad", "odd_group", "group:1 group:2 group:8 group:16 group:32"},
        {"nsa_selected_attention_grad", "causal", "mask_contents causal_mode_without_mask"},
        {"nsa_selected_attention_grad", "mask_contents", "causal_mode_without_mask mask_of_other_size diagonal_block_twice"},
        {"nsa_selected_attention_grad", "causal_mode_without_mask", "mask_of_other_size diagonal_block_twice"},
        {"nsa_selected_attention_grad", "lists_of_heads_differ", "topk:canonical"},
        {"nsa_selected_attention_grad", "unsorted_list", "topk:canonical topk:ascending topk:same"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
