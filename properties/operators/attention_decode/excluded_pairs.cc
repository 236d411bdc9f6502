// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& attention_decode_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"attention_decode", "one_query", "several_queries fewer_keys"},
        {"attention_decode", "fp16", "bf16 fp32"},
        {"attention_decode", "bf16", "fp32"},
        {"attention_decode", "ragged_page", "page_of_one"},
        {"attention_decode", "even_page", "page_of_one"},
        {"attention_decode", "page_of_one", "large_page"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
