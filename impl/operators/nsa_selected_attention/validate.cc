#include "impl/operators/nsa_selected_attention/validate.h"

#include <cstdint>
#include <string>

#include "impl/arguments/argument_checks.h"
#include "impl/operators/selection/key_selection.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kStatisticCopies = 8;

bool is_legal_dim(std::int64_t dim) { return dim == 128 || dim == kMaxAttentionDim; }

template <class Args>
MaybeRejection check_attributes(const Args& a) {
    if (auto rejection = check_scale("scale_value", a.scale_value)) return rejection;
    if (auto rejection = check_range("head_num", a.head_num, 1, kMaxAttentionHeads))
        return rejection;
    if (a.sparse_mode != 0 && a.sparse_mode != 2)
        return invalid("sparse_mode", std::to_string(a.sparse_mode), "0 or 2");
    if (auto rejection =
            check_multiple_of_16("selected_block_size", a.selected_block_size, kMaxSelectedBlock)) {
        return rejection;
    }
    return check_range("selected_block_count", a.selected_block_count, 1, kMaxSelectedCount);
}

MaybeRejection check_query(const attncheck_tensor& query, std::int64_t head_num) {
    if (auto rejection = check_extent("query", "T1", query.shape[0], 1, kMaxTokens))
        return rejection;
    if (auto rejection = check_extent("query", "N1", query.shape[1], 1, kMaxAttentionHeads))
        return rejection;
    if (!is_legal_dim(query.shape[2])) {
        return invalid("query", "of extent D = " + std::to_string(query.shape[2]),
                       "D of 128 or 192");
    }
    if (head_num == query.shape[1]) return std::nullopt;
    return invalid("head_num", std::to_string(head_num),
                   "N1 of query, which is " + std::to_string(query.shape[1]));
}

MaybeRejection check_key(const attncheck_tensor& key, const attncheck_tensor& query) {
    const std::int64_t num_query_heads = query.shape[1], num_kv_heads = key.shape[1];
    if (auto rejection = check_extent("key", "T2", key.shape[0], 1, kMaxTokens)) return rejection;
    if (auto rejection = check_extent("key", "N2", num_kv_heads, 1, kMaxAttentionHeads))
        return rejection;
    if (key.shape[2] != query.shape[2]) {
        return invalid("key", "of extent D = " + std::to_string(key.shape[2]),
                       "D of query, which is " + std::to_string(query.shape[2]));
    }
    if (num_query_heads % num_kv_heads == 0 &&
        num_query_heads / num_kv_heads <= kMaxHeadsPerGroup) {
        return std::nullopt;
    }
    return invalid(
        "key", "of extent N2 = " + std::to_string(num_kv_heads),
        "divisors N2 of N1 with N1 / N2 <= 32, N1 is " + std::to_string(num_query_heads));
}

MaybeRejection check_value(const attncheck_tensor& value, const attncheck_tensor& key) {
    const std::int64_t value_dim = value.shape[2];
    if (auto rejection = check_shape(
            "value", value, {{"T2", key.shape[0]}, {"N2", key.shape[1]}, {"Dv", value_dim}})) {
        return rejection;
    }
    if (is_legal_dim(value_dim) && value_dim <= key.shape[2]) return std::nullopt;
    return invalid("value", "of extent Dv = " + std::to_string(value_dim),
                   "Dv of 128 or 192, at most D, which is " + std::to_string(key.shape[2]));
}

template <class Args>
MaybeRejection check_inputs(const Args& a) {
    if (auto rejection = check_query(a.query, a.head_num)) return rejection;
    if (auto rejection = check_key(a.key, a.query)) return rejection;
    return check_value(a.value, a.key);
}

template <class Args>
MaybeRejection check_topk_shape(const Args& a) {
    return check_shape("topk_indices", a.topk_indices,
                       {{"T1", a.query.shape[0]},
                        {"N2", a.key.shape[1]},
                        {"selected_block_count", a.selected_block_count}});
}

template <class Args>
MaybeRejection check_per_head(const char* name, const attncheck_tensor& tensor, const Args& a,
                              Extent last) {
    return check_shape(name, tensor, {{"T1", a.query.shape[0]}, {"N1", a.query.shape[1]}, last});
}

template <class Args>
MaybeRejection check_statistics(const Args& a) {
    constexpr Extent kCopies{"8", kStatisticCopies};
    if (auto rejection = check_per_head("softmax_max", a.softmax_max, a, kCopies)) return rejection;
    return check_per_head("softmax_sum", a.softmax_sum, a, kCopies);
}

template <class Args>
MaybeRejection check_all_lengths(const Args& a, std::int64_t max_size) {
    const char* const kv_name = "actual_seq_kv_len";
    const attncheck_int_array &query_ends = a.actual_seq_q_len, &key_ends = a.actual_seq_kv_len;
    if (auto rejection =
            check_lengths("actual_seq_q_len", query_ends,
                          {max_size, kMaxSequenceLen, {"T1", a.query.shape[0]}}, nullptr)) {
        return rejection;
    }
    if (key_ends.size != query_ends.size) {
        return invalid(kv_name, "of size " + std::to_string(key_ends.size),
                       "the size of actual_seq_q_len, which is " + std::to_string(query_ends.size));
    }
    const std::int64_t block = a.selected_block_size, least = block * a.selected_block_count;
    return check_lengths(
        kv_name, key_ends, {max_size, kMaxSequenceLen, {"T2", a.key.shape[0]}},
        [&](std::int64_t length, std::int64_t i) -> MaybeRejection {
            if (length == 0 || (length % block == 0 && length >= least)) return std::nullopt;
            return invalid(
                kv_name, element_text(key_ends.values[i], i),
                "sequences of 0 keys or of a multiple of selected_block_size, which is " +
                    std::to_string(block) + ", and at least selected_block_count of it");
        });
}

template <class Args>
MaybeRejection check_mask(const Args& a) {
    const char* const name = "atten_mask";
    const attncheck_tensor& mask = a.atten_mask;
    if (mask.data == nullptr) return std::nullopt;
    if (auto rejection = check_byte_mask(name, mask)) return rejection;
    if (a.sparse_mode != 0) return std::nullopt;
    return check_shape(name, mask,
                       {{"max S_q", longest_sequence(a.actual_seq_q_len)},
                        {"max S_kv", longest_sequence(a.actual_seq_kv_len)}});
}

MaybeRejection check_topk_values(const attncheck_tensor& topk, const KeySelection& selection) {
    Sequence sequence;
    for (std::int64_t query = 0; query < selection.num_queries(); ++query) {
        if (query >= sequence.query_end) sequence = selection.sequence_of_query(query);
        if (!sequence.has_keys()) continue;
        const std::int64_t num_blocks = (sequence.key_end - sequence.key_begin) / selection.block();
        for (std::int64_t kv_head = 0; kv_head < topk.shape[1]; ++kv_head) {
            for (std::int64_t i = 0; i < topk.shape[2]; ++i) {
                const std::int64_t block = selection.listed_block(query, kv_head, i);
                if (block >= 0 && block < num_blocks) continue;
                return invalid("topk_indices",
                               std::to_string(block) + " at [" + std::to_string(query) + ", " +
                                   std::to_string(kv_head) + ", " + std::to_string(i) + "]",
                               "[0, " + std::to_string(num_blocks) + ")");
            }
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Rejection> validate_nsa_selected_attention(
    const attncheck_nsa_selected_attention_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_nsa_selected_attention_args& a = *args;
    if (a.query.data == nullptr) return absent("query");
    if (a.key.data == nullptr) return absent("key");
    if (a.value.data == nullptr) return absent("value");
    if (a.topk_indices.data == nullptr) return absent("topk_indices");
    if (a.actual_seq_q_len.values == nullptr) return absent("actual_seq_q_len");
    if (a.actual_seq_kv_len.values == nullptr) return absent("actual_seq_kv_len");
    if (a.input_layout == nullptr) return absent("input_layout");
    if (a.softmax_max.data == nullptr) return absent("softmax_max");
    if (a.softmax_sum.data == nullptr) return absent("softmax_sum");
    if (a.attention_out.data == nullptr) return absent("attention_out");

    if (auto rejection = check_layout("input_layout", a.input_layout)) return rejection;
    if (auto rejection = check_ranks({{"query", &a.query, 3},
                                      {"key", &a.key, 3},
                                      {"value", &a.value, 3},
                                      {"topk_indices", &a.topk_indices, 3},
                                      {"softmax_max", &a.softmax_max, 3},
                                      {"softmax_sum", &a.softmax_sum, 3},
                                      {"attention_out", &a.attention_out, 3}})) {
        return rejection;
    }
    const std::int32_t half = a.query.dtype;
    if (auto r = check_half("query", a.query)) return r;
    if (auto r = check_dtype("key", a.key, half, "query")) return r;
    if (auto r = check_dtype("value", a.value, half, "query")) return r;
    if (auto r = check_dtype("topk_indices", a.topk_indices, ATTNCHECK_INT32, nullptr)) return r;
    if (auto r = check_dtype("softmax_max", a.softmax_max, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("softmax_sum", a.softmax_sum, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("attention_out", a.attention_out, half, "query")) return r;

    if (auto rejection = check_attributes(a)) return rejection;
    if (auto rejection = check_inputs(a)) return rejection;
    if (auto rejection = check_topk_shape(a)) return rejection;
    if (auto rejection = check_all_lengths(a, kMaxForwardSequences)) return rejection;
    if (auto rejection = check_mask(a)) return rejection;
    if (auto rejection = check_statistics(a)) return rejection;
    if (auto rejection =
            check_per_head("attention_out", a.attention_out, a, {"Dv", a.value.shape[2]})) {
        return rejection;
    }
    return check_topk_values(a.topk_indices, KeySelection(a));
}

namespace {

MaybeRejection check_gradient_dtypes(const attncheck_nsa_selected_attention_grad_args& a) {
    const std::int32_t half = a.query.dtype;
    if (auto r = check_half("query", a.query)) return r;
    if (auto r = check_dtype("key", a.key, half, "query")) return r;
    if (auto r = check_dtype("value", a.value, half, "query")) return r;
    if (auto r = check_dtype("attention_out", a.attention_out, half, "query")) return r;
    if (auto r = check_dtype("attention_out_grad", a.attention_out_grad, half, "query")) return r;
    if (auto r = check_dtype("softmax_max", a.softmax_max, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("softmax_sum", a.softmax_sum, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("topk_indices", a.topk_indices, ATTNCHECK_INT32, nullptr)) return r;
    if (auto r = check_dtype("dq", a.dq, half, "query")) return r;
    if (auto r = check_dtype("dk", a.dk, half, "query")) return r;
    return check_dtype("dv", a.dv, half, "query");
}

MaybeRejection check_gradient_outputs(const attncheck_nsa_selected_attention_grad_args& a) {
    const Extent tokens{"T2", a.key.shape[0]}, heads{"N2", a.key.shape[1]},
        head_dim{"D", a.key.shape[2]}, value_dim{"Dv", a.value.shape[2]};
    if (auto rejection = check_per_head("dq", a.dq, a, head_dim)) return rejection;
    if (auto rejection = check_shape("dk", a.dk, {tokens, heads, head_dim})) return rejection;
    return check_shape("dv", a.dv, {tokens, heads, value_dim});
}

}  // namespace

std::optional<Rejection> validate_nsa_selected_attention_grad(
    const attncheck_nsa_selected_attention_grad_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_nsa_selected_attention_grad_args& a = *args;
    if (a.query.data == nullptr) return absent("query");
    if (a.key.data == nullptr) return absent("key");
    if (a.value.data == nullptr) return absent("value");
    if (a.attention_out.data == nullptr) return absent("attention_out");
    if (a.attention_out_grad.data == nullptr) return absent("attention_out_grad");
    if (a.softmax_max.data == nullptr) return absent("softmax_max");
    if (a.softmax_sum.data == nullptr) return absent("softmax_sum");
    if (a.topk_indices.data == nullptr) return absent("topk_indices");
    if (a.actual_seq_q_len.values == nullptr) return absent("actual_seq_q_len");
    if (a.actual_seq_kv_len.values == nullptr) return absent("actual_seq_kv_len");
    if (a.input_layout == nullptr) return absent("input_layout");
    if (a.dq.data == nullptr) return absent("dq");
    if (a.dk.data == nullptr) return absent("dk");
    if (a.dv.data == nullptr) return absent("dv");

    if (auto rejection = check_layout("input_layout", a.input_layout)) return rejection;
    if (auto rejection = check_ranks({{"query", &a.query, 3},
                                      {"key", &a.key, 3},
                                      {"value", &a.value, 3},
                                      {"attention_out", &a.attention_out, 3},
                                      {"attention_out_grad", &a.attention_out_grad, 3},
                                      {"softmax_max", &a.softmax_max, 3},
                                      {"softmax_sum", &a.softmax_sum, 3},
                                      {"topk_indices", &a.topk_indices, 3},
                                      {"dq", &a.dq, 3},
                                      {"dk", &a.dk, 3},
                                      {"dv", &a.dv, 3}})) {
        return rejection;
    }
    if (auto rejection = check_gradient_dtypes(a)) return rejection;
    if (auto rejection = check_attributes(a)) return rejection;
    if (auto rejection = check_inputs(a)) return rejection;
    const Extent value_dim{"Dv", a.value.shape[2]};
    if (auto rejection = check_per_head("attention_out", a.attention_out, a, value_dim))
        return rejection;
    if (auto rejection = check_per_head("attention_out_grad", a.attention_out_grad, a, value_dim))
        return rejection;
    if (auto rejection = check_statistics(a)) return rejection;
    if (auto rejection = check_topk_shape(a)) return rejection;
    if (auto rejection = check_all_lengths(a, kMaxTokens)) return rejection;
    if (auto rejection = check_mask(a)) return rejection;
    if (auto rejection = check_gradient_outputs(a)) return rejection;
    return check_topk_values(a.topk_indices, KeySelection(a));
}

}  // namespace attncheck::impl
