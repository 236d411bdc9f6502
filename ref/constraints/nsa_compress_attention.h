// The documented constraints of NsaCompressAttention as a plain predicate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ref/constraints/constraints.h"

namespace attncheck::ref {

/// Order of the checks: absent arguments, input_layout, ranks, dtypes, attributes, shape relations,
/// length arrays, masks, output shapes. A length array is absent when !present, whatever its size;
/// both masks may be absent. That a sequence has at least K selection blocks is a rule of
/// actual_cmp_seq_kv_len.
/// Throws std::logic_error when values do not have as many entries as an accepted size: a mistake
/// of the caller, not of the call.
struct CompressAttentionArguments {
    TensorArgument query, key, value, atten_mask, topk_mask;
    ArrayArgument actual_seq_q_len, actual_cmp_seq_kv_len, actual_sel_seq_kv_len;
    double scale_value = 0;
    std::int64_t head_num = 0;
    std::optional<std::string> input_layout;
    std::int64_t sparse_mode = 0, compress_block_size = 0, compress_stride = 0;
    std::int64_t select_block_size = 0, select_block_count = 0;
    TensorArgument softmax_max, softmax_sum, attention_out, topk_indices;
};
Ruling rule_nsa_compress_attention(const CompressAttentionArguments& arguments);

}  // namespace attncheck::ref
