// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& nsa_compress_attention_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"nsa_compress_attention", "fp16", "bf16"},
        {"nsa_compress_attention", "wide_row", "group:1"},
        {"nsa_compress_attention", "ragged_last_window", "M:1"},
        {"nsa_compress_attention", "block_no_multiple_of_stride", "M:1 M:8 N:4 N:8"},
        {"nsa_compress_attention", "select_no_multiple_of_block", "M:1 N:8"},
        {"nsa_compress_attention", "windows_of_128", "M:1 M:3"},
        {"nsa_compress_attention", "no_mask", "mask_in_sparse_mode_0 row_without_key part_of_row_visible equal_scores_of_hidden_blocks hides:random hides:causal hides:ramp hides:all hides:striped"},
        {"nsa_compress_attention", "no_topk_mask", "forced_above_count part_of_list_forced forced_hidden_block forces:random forces:paper forces:most forces:last forces:all"},
        {"nsa_compress_attention", "mask_in_sparse_mode_0", "sparse_mode_1_without_mask equal_scores"},
        {"nsa_compress_attention", "sparse_mode_1_without_mask", "row_without_key part_of_row_visible equal_scores_of_hidden_blocks hides:random hides:causal hides:ramp hides:all hides:striped"},
        {"nsa_compress_attention", "row_without_key", "equal_scores hides:ramp hides:striped"},
        {"nsa_compress_attention", "part_of_row_visible", "equal_scores hides:all"},
        {"nsa_compress_attention", "fewer_visible_than_count", "hides:all"},
        {"nsa_compress_attention", "equal_scores_of_hidden_blocks", "equal_scores hides:all"},
        {"nsa_compress_attention", "equal_scores", "hides:random hides:causal hides:ramp hides:all hides:striped logits:plain logits:dominant logits:single logits:minus40 logits:minus120 logits:minus300 logits:plus300 logits:minus20000"},
        {"nsa_compress_attention", "forced_above_count", "forces:last"},
        {"nsa_compress_attention", "part_of_list_forced", "forces:all"},
        {"nsa_compress_attention", "M:1", "N:2 N:3 N:4 N:8"},
        {"nsa_compress_attention", "M:2", "N:3 N:4 N:8"},
        {"nsa_compress_attention", "M:3", "N:4 N:8"},
        {"nsa_compress_attention", "M:4", "N:8"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
