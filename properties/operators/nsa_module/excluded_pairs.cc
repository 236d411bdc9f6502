// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& nsa_module_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"nsa_module", "fp16", "bf16"},
        {"nsa_module", "tied", "untied"},
        {"nsa_module", "no_overlap", "overlap block_no_multiple_of_stride"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
