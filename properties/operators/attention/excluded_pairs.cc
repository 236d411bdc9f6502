// Pairs of classes that no legal case has, as the search of tests/properties/search/pair_search.cc
// found them: 400 draws of every property's generator and 2000 crossings for each pair that they
// left. Written by attncheck_pair_search (pair_search_main.cc).
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& attention_excluded_pairs() {
    // clang-format off
    static const std::vector<ExcludedPairs> all = {
        {"attention", "fp16", "bf16 fp32"},
        {"attention", "bf16", "fp32"},
        {"attention", "no_window", "causal window align:top_left align:bottom_right"},
        {"attention", "causal", "window"},
        {"attention", "value_dim_smaller", "value_dim_larger"},
        {"attention", "hidden_nan", "layout:packed kv_length:none kv_length:all"},
        {"attention", "layout:packed", "bias_type:fp32 bias_type:input bias_values:normal bias_values:hides bias_values:far bias:full bias:one_batch bias:one_head bias:shared bias:per_key bias:head_key bias:per_query bias:head mask:full mask:one_batch mask:one_head mask:shared mask:per_key mask:head_key mask:per_query mask:head kv_length:all kv_length:some kv_length:empty"},
        {"attention", "bias_type:fp32", "bias:none"},
        {"attention", "bias_type:input", "bias:none"},
        {"attention", "bias_values:normal", "bias:none"},
        {"attention", "bias_values:hides", "bias:none"},
        {"attention", "bias_values:far", "bias:none"},
        {"attention_grad", "fp16", "bf16 fp32"},
        {"attention_grad", "bf16", "fp32"},
        {"attention_grad", "no_window", "causal window align:top_left align:bottom_right"},
        {"attention_grad", "causal", "window"},
        {"attention_grad", "value_dim_smaller", "value_dim_larger"},
        {"attention_grad", "square", "many_keys"},
        {"attention_grad", "hidden_nan", "layout:packed kv_length:none kv_length:all"},
        {"attention_grad", "keys_without_queries", "many_queries"},
        {"attention_grad", "layout:packed", "bias_type:fp32 bias_type:input bias_values:normal bias_values:hides bias_values:far bias:full bias:one_batch bias:one_head bias:shared bias:per_key bias:head_key bias:per_query bias:head mask:full mask:one_batch mask:one_head mask:shared mask:per_key mask:head_key mask:per_query mask:head kv_length:all kv_length:some kv_length:empty"},
        {"attention_grad", "bias_type:fp32", "bias:none"},
        {"attention_grad", "bias_type:input", "bias:none"},
        {"attention_grad", "bias_values:normal", "bias:none"},
        {"attention_grad", "bias_values:hides", "bias:none"},
        {"attention_grad", "bias_values:far", "bias:none"},
    };
    // clang-format on
    return all;
}

}  // namespace attncheck::properties
