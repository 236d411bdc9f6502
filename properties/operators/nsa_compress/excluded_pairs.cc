// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& nsa_compress_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"nsa_compress", "fp16", "bf16"},
        {"nsa_compress", "exactly_block", "no_blocks"},
        {"nsa_compress", "just_above_block", "no_blocks"},
        {"nsa_compress", "ragged_tail", "no_blocks"},
        {"nsa_compress", "ragged_window", "no_overlap"},
        {"nsa_compress", "deep_overlap", "no_overlap"},
        {"nsa_compress", "no_blocks", "many_blocks"},
        {"nsa_compress_grad", "fp16", "bf16"},
        {"nsa_compress_grad", "leading_empty", "lengths_absent"},
        {"nsa_compress_grad", "middle_empty", "lengths_absent"},
        {"nsa_compress_grad", "trailing_empty", "lengths_absent"},
        {"nsa_compress_grad", "exactly_block", "no_blocks"},
        {"nsa_compress_grad", "just_above_block", "no_blocks"},
        {"nsa_compress_grad", "ragged_tail", "no_blocks"},
        {"nsa_compress_grad", "beyond_last", "lengths_absent"},
        {"nsa_compress_grad", "no_blocks", "many_blocks"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
