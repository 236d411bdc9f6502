// The documented constraints as plain predicates: what a call looks like to a validator, and the
// ruling on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attncheck::ref {

inline constexpr int kAccepted = 0;
inline constexpr int kAbsent = 161001;   ///< a required argument is absent
inline constexpr int kInvalid = 161002;  ///< the arguments break a documented constraint

struct TensorArgument {
    bool present = false;
    std::int32_t dtype = 0, rank = 0;
    std::vector<std::int64_t> shape;  ///< min(rank, 8) entries, none when rank < 0
};

/// A host array: absent when !present and size == 0; !present with size > 0 is a null pointer with
/// a length.
struct ArrayArgument {
    bool present = false;
    std::int64_t size = 0;
    std::vector<std::int64_t> values;  ///< size entries when present and size > 0
};

/// Accepted, or the first rule that is broken in the order of the contract.
struct Ruling {
    int status = kAccepted;
    std::string parameter;  ///< as in candidate.h, e.g. "compress_stride"
    std::string message;    ///< names the parameter, its value and what is allowed
    /// Which rule decided, in words without the values of the call: the parameter, what is
    /// allowed, on which side it was left, in which sequence, and the layout or mode that the rule
    /// depends on.
    std::string clause;
    /// True when the call lacks, anywhere, an argument that only other arguments make required (a
    /// drop mask with keep_prob < 1, ...): then 161001 and 161002 are both right, whichever of them
    /// status is, also when an earlier rule decides (contract.md, decision 8). Only FlashAttention
    /// has such arguments; false when the call is accepted.
    bool either_status = false;
    /// True for operators whose contract gives no number to rejections: any but 0 and -1 is right,
    /// and there is no order of the rules.
    bool any_status = false;
    bool accepted() const { return status == kAccepted; }
};

/// Order of the checks: null pointers, layout, ranks, dtypes, attribute ranges, shape relations,
/// length array, and last the shapes that depend on the number of blocks. An absent layout is
/// rejected in the forward (161001) and means "TND" in the gradient, as an absent length array
/// there means one sequence of length T.
struct CompressArguments {
    TensorArgument input, weight, output;
    ArrayArgument act_seq_len;
    std::optional<std::string> layout;
    std::int64_t compress_block_size = 0, compress_stride = 0, act_seq_len_type = 0;
};
Ruling rule_nsa_compress(const CompressArguments& arguments);

struct CompressGradArguments {
    TensorArgument output_grad, input, weight, input_grad, weight_grad;
    ArrayArgument act_seq_len;
    std::optional<std::string> layout;
    std::int64_t compress_block_size = 0, compress_stride = 0, act_seq_len_type = 0;
};
Ruling rule_nsa_compress_grad(const CompressGradArguments& arguments);

/// Order of the checks: absent arguments, input_layout, ranks, dtypes, attributes, shape relations,
/// length arrays, atten_mask, output shapes, and last the values of topk_indices. A length array is
/// absent when !present, whatever its size; atten_mask may be absent.
/// topk_values holds the values of topk_indices row-major over its shape [T1,N2,K]. It is read only
/// when everything else is accepted.
/// Throws std::logic_error when values or topk_values do not have as many entries as the size and
/// the shape they belong to, once these are accepted: a mistake of the caller, not of the call.
struct SelectedAttentionArguments {
    TensorArgument query, key, value, topk_indices, atten_mask;
    ArrayArgument actual_seq_q_len, actual_seq_kv_len;
    double scale_value = 0;
    std::int64_t head_num = 0;
    std::optional<std::string> input_layout;
    std::int64_t sparse_mode = 0, selected_block_size = 0, selected_block_count = 0;
    TensorArgument softmax_max, softmax_sum, attention_out;
    std::vector<std::int64_t> topk_values;
};
Ruling rule_nsa_selected_attention(const SelectedAttentionArguments& arguments);

struct SelectedAttentionGradArguments {
    TensorArgument query, key, value, attention_out, attention_out_grad;
    TensorArgument softmax_max, softmax_sum, topk_indices;
    ArrayArgument actual_seq_q_len, actual_seq_kv_len;
    TensorArgument atten_mask;
    double scale_value = 0;
    std::int64_t selected_block_size = 0, selected_block_count = 0, head_num = 0;
    std::optional<std::string> input_layout;
    std::int64_t sparse_mode = 0;
    TensorArgument dq, dk, dv;
    std::vector<std::int64_t> topk_values;
};
Ruling rule_nsa_selected_attention_grad(const SelectedAttentionGradArguments& arguments);

/// Both directions of FlashAttention; what a direction does not have is not checked (dy and the
/// gradients in the forward). Names in Ruling::parameter are those of the direction's struct in
/// candidate.h: pse is real_shift or pse_shift, attention is attention_out or attention_in,
/// softmax_layout is softmax_out_layout or softmax_in_layout.
/// Order of the checks: absent arguments, layouts, ranks, dtypes, attributes, shape relations,
/// length arrays (TND only), then ropes, position bias, drop mask, padding mask, attention mask,
/// sparse mode with its tokens and prefix, position bias against the sparse mode, and last the
/// shapes of the outputs. Arrays are absent when !present, whatever their size; the start indices
/// are checked only when both are given with slopes (pse_type 2, 3).
/// Throws std::logic_error when an array whose size is accepted and whose values count does not
/// hold them: a mistake of the caller, not of the call.
struct FlashAttentionArguments {
    TensorArgument query, query_rope, key, key_rope, value, dy;
    TensorArgument pse, drop_mask, padding_mask, atten_mask;  ///< optional, as the ropes are
    TensorArgument softmax_max, softmax_sum;                  ///< outputs of the forward
    TensorArgument attention;                                 ///< attention_out or attention_in
    TensorArgument dq, dq_rope, dk, dk_rope, dv;
    ArrayArgument prefix, actual_seq_q_len, actual_seq_kv_len, q_start_idx, kv_start_idx;
    double scale_value = 1, keep_prob = 1;
    std::int64_t pre_tokens = 0, next_tokens = 0, head_num = 0;
    std::optional<std::string> input_layout, softmax_layout;
    std::int64_t sparse_mode = 0, pse_type = 1;
    bool ascend950 = false;  ///< the platform profile under which the gradient takes fp8
};
Ruling rule_flash_attention_score(const FlashAttentionArguments& arguments);
Ruling rule_flash_attention_score_grad(const FlashAttentionArguments& arguments);

}  // namespace attncheck::ref
