#include "impl/operators/nsa_compress_attention/validate.h"

#include <cstdint>
#include <limits>
#include <string>

#include "impl/arguments/argument_checks.h"
#include "impl/operators/nsa_compress_attention/scores.h"

namespace attncheck::impl {
namespace {

using Args = attncheck_nsa_compress_attention_args;

// Documented limits (nsa.md 6.8; contract.md, decision 7); where none is documented, that of the
// type.
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxBlock = 128, kMaxStride = 64, kMaxDim = 768;
static_assert(kMaxBlock / 16 <= kMaxStridesPerBlock);
constexpr std::int64_t kMaxCompressedLen = 14000;
constexpr std::int64_t kRowsOfMatrixUnit = 128;  // G < 128 and 128 % G == 0
constexpr std::int64_t kStatisticCopies = 8;

SelectionGeometry geometry(const Args& a) {
    return {a.compress_block_size, a.compress_stride, a.select_block_size};
}

MaybeRejection check_present(const Args& a) {
    if (a.query.data == nullptr) return absent("query");
    if (a.key.data == nullptr) return absent("key");
    if (a.value.data == nullptr) return absent("value");
    if (a.actual_seq_q_len.values == nullptr) return absent("actual_seq_q_len");
    if (a.actual_cmp_seq_kv_len.values == nullptr) return absent("actual_cmp_seq_kv_len");
    if (a.actual_sel_seq_kv_len.values == nullptr) return absent("actual_sel_seq_kv_len");
    if (a.input_layout == nullptr) return absent("input_layout");
    if (a.softmax_max.data == nullptr) return absent("softmax_max");
    if (a.softmax_sum.data == nullptr) return absent("softmax_sum");
    if (a.attention_out.data == nullptr) return absent("attention_out");
    if (a.topk_indices.data == nullptr) return absent("topk_indices");
    return std::nullopt;
}

MaybeRejection check_dtypes(const Args& a) {
    const std::int32_t half = a.query.dtype;
    if (auto r = check_half("query", a.query)) return r;
    if (auto r = check_dtype("key", a.key, half, "query")) return r;
    if (auto r = check_dtype("value", a.value, half, "query")) return r;
    if (auto r = check_dtype("softmax_max", a.softmax_max, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("softmax_sum", a.softmax_sum, ATTNCHECK_FLOAT32, nullptr)) return r;
    if (auto r = check_dtype("attention_out", a.attention_out, half, "query")) return r;
    return check_dtype("topk_indices", a.topk_indices, ATTNCHECK_INT32, nullptr);
}

// Among attributes whose own ranges hold.
MaybeRejection check_block_relations(const Args& a) {
    const std::int64_t block = a.compress_block_size, stride = a.compress_stride,
                       selected = a.select_block_size;
    if (stride > block) {
        return invalid("compress_stride", std::to_string(stride),
                       "at most compress_block_size, which is " + std::to_string(block));
    }
    if (selected < block) {
        return invalid("select_block_size", std::to_string(selected),
                       "at least compress_block_size, which is " + std::to_string(block));
    }
    if (selected % stride == 0) return std::nullopt;
    return invalid("select_block_size", std::to_string(selected),
                   "multiples of compress_stride, which is " + std::to_string(stride));
}

MaybeRejection check_attributes(const Args& a) {
    if (auto r = check_scale("scale_value", a.scale_value)) return r;
    if (auto r = check_range("head_num", a.head_num, 1, kUnlimited)) return r;
    if (auto r = check_range("sparse_mode", a.sparse_mode, 0, 1)) return r;
    if (auto r = check_multiple_of_16("compress_block_size", a.compress_block_size, kMaxBlock))
        return r;
    if (auto r = check_multiple_of_16("compress_stride", a.compress_stride, kMaxStride)) return r;
    if (auto r = check_multiple_of_16("select_block_size", a.select_block_size, kMaxBlock))
        return r;
    if (auto r = check_range("select_block_count", a.select_block_count, 1, kMaxListedBlocks))
        return r;
    return check_block_relations(a);
}

// Each extent is at least 1.
MaybeRejection check_product(const char* name, const char* meaning,
                             std::initializer_list<std::int64_t> extents) {
    std::int64_t product = 1;
    for (const std::int64_t extent : extents) {
        if (!__builtin_mul_overflow(product, extent, &product)) continue;
        return invalid(name, std::string("of more than 2^63 - 1 elements ") + meaning,
                       "extents whose product fits in int64");
    }
    return std::nullopt;
}

MaybeRejection check_query(const Args& a) {
    const std::int64_t tokens = a.query.shape[0], heads = a.query.shape[1], dim = a.query.shape[2];
    if (auto r = check_extent("query", "T1", tokens, 1, kUnlimited)) return r;
    if (auto r = check_extent("query", "N1", heads, 1, kUnlimited)) return r;
    if (auto r = check_extent("query", "D", dim, 1, kMaxDim)) return r;
    if (a.head_num == heads) return std::nullopt;
    return invalid("head_num", std::to_string(a.head_num),
                   "N1 of query, which is " + std::to_string(heads));
}

MaybeRejection check_key(const Args& a) {
    const std::int64_t rows = a.key.shape[0], heads = a.key.shape[1], dim = a.key.shape[2],
                       query_heads = a.query.shape[1];
    if (auto r = check_extent("key", "C", rows, 1, kUnlimited)) return r;
    if (auto r = check_extent("key", "N2", heads, 1, kUnlimited)) return r;
    if (dim != a.query.shape[2]) {
        return invalid("key", "of extent D = " + std::to_string(dim),
                       "D of query, which is " + std::to_string(a.query.shape[2]));
    }
    const std::int64_t group = query_heads / heads;
    if (query_heads % heads == 0 && group < kRowsOfMatrixUnit && kRowsOfMatrixUnit % group == 0)
        return std::nullopt;
    return invalid("key", "of extent N2 = " + std::to_string(heads),
                   "divisors N2 of N1 with N1 / N2 one of 1, 2, 4, ..., 64, N1 is " +
                       std::to_string(query_heads));
}

MaybeRejection check_value(const Args& a) {
    const std::int64_t value_dim = a.value.shape[2];
    if (auto r = check_shape("value", a.value,
                             {{"C", a.key.shape[0]}, {"N2", a.key.shape[1]}, {"Dv", value_dim}})) {
        return r;
    }
    if (value_dim >= 1 && value_dim <= a.key.shape[2]) return std::nullopt;
    return invalid("value", "of extent Dv = " + std::to_string(value_dim),
                   "Dv of at least 1 and at most D, which is " + std::to_string(a.key.shape[2]));
}

// Once the extents are related, three tensors bound all others: D is the largest last extent but
// for the statistics' 8 and the list's K.
MaybeRejection check_products(const Args& a) {
    const std::int64_t tokens = a.query.shape[0], heads = a.query.shape[1], dim = a.query.shape[2],
                       rows = a.key.shape[0], kv_heads = a.key.shape[1];
    if (auto r = check_product("query", "[T1, N1, D]", {tokens, heads, dim})) return r;
    if (auto r = check_product("query", "[T1, N1, 8] in its statistics",
                               {tokens, heads, kStatisticCopies})) {
        return r;
    }
    if (auto r = check_product("key", "[C, N2, D]", {rows, kv_heads, dim})) return r;
    return check_product("query", "[T1, N2, K] in topk_indices",
                         {tokens, kv_heads, a.select_block_count});
}

MaybeRejection check_same_size(const char* name, const attncheck_int_array& ends, const Args& a) {
    if (ends.size == a.actual_seq_q_len.size) return std::nullopt;
    return invalid(
        name, "of size " + std::to_string(ends.size),
        "the size of actual_seq_q_len, which is " + std::to_string(a.actual_seq_q_len.size));
}

// Enough candidates for a list, unless the sequence has neither queries nor compressed keys.
MaybeRejection check_compressed_lengths(const Args& a) {
    const char* const name = "actual_cmp_seq_kv_len";
    const attncheck_int_array &ends = a.actual_cmp_seq_kv_len, &query_ends = a.actual_seq_q_len;
    if (auto r = check_same_size(name, ends, a)) return r;
    return check_lengths(
        name, ends, {kUnlimited, kMaxCompressedLen, {"C", a.key.shape[0]}},
        [&](std::int64_t length, std::int64_t i) -> MaybeRejection {
            const std::int64_t queries =
                query_ends.values[i] - (i == 0 ? 0 : query_ends.values[i - 1]);
            if (length == 0 && queries == 0) return std::nullopt;
            const std::int64_t candidates = geometry(a).num_selected(length);
            if (candidates >= a.select_block_count) return std::nullopt;
            return invalid(name, element_text(ends.values[i], i),
                           "sequences with at least select_block_count = " +
                               std::to_string(a.select_block_count) +
                               " selection blocks or with neither queries nor compressed keys; "
                               "this one has " +
                               std::to_string(candidates));
        });
}

MaybeRejection check_selected_lengths(const Args& a) {
    const char* const name = "actual_sel_seq_kv_len";
    const attncheck_int_array &ends = a.actual_sel_seq_kv_len, &cmp_ends = a.actual_cmp_seq_kv_len;
    if (auto r = check_same_size(name, ends, a)) return r;
    std::int64_t wanted = 0, previous = 0;
    for (std::int64_t i = 0; i < ends.size; ++i) {
        wanted += geometry(a).num_selected(cmp_ends.values[i] - previous);
        previous = cmp_ends.values[i];
        if (ends.values[i] == wanted) continue;
        return invalid(name, element_text(ends.values[i], i),
                       "the cumulative sum of ceil(Cmp / (select_block_size / compress_stride)), "
                       "which is " +
                           std::to_string(wanted));
    }
    return std::nullopt;
}

MaybeRejection check_all_lengths(const Args& a) {
    if (auto r = check_lengths("actual_seq_q_len", a.actual_seq_q_len,
                               {kUnlimited, kUnlimited, {"T1", a.query.shape[0]}}, nullptr)) {
        return r;
    }
    if (auto r = check_compressed_lengths(a)) return r;
    return check_selected_lengths(a);
}

MaybeRejection check_masks(const Args& a) {
    const Extent queries{"max S_q", longest_sequence(a.actual_seq_q_len)},
        keys{"max Cmp", longest_sequence(a.actual_cmp_seq_kv_len)},
        blocks{"max Sel", longest_sequence(a.actual_sel_seq_kv_len)};
    if (a.atten_mask.data != nullptr) {
        if (auto r = check_byte_mask("atten_mask", a.atten_mask)) return r;
        if (auto r = check_shape("atten_mask", a.atten_mask, {queries, keys})) return r;
    }
    if (a.topk_mask.data == nullptr) return std::nullopt;
    if (auto r = check_byte_mask("topk_mask", a.topk_mask)) return r;
    return check_shape("topk_mask", a.topk_mask, {queries, blocks});
}

MaybeRejection check_outputs(const Args& a) {
    const Extent tokens{"T1", a.query.shape[0]}, heads{"N1", a.query.shape[1]},
        copies{"8", kStatisticCopies};
    if (auto r = check_shape("softmax_max", a.softmax_max, {tokens, heads, copies})) return r;
    if (auto r = check_shape("softmax_sum", a.softmax_sum, {tokens, heads, copies})) return r;
    if (auto r = check_shape("attention_out", a.attention_out,
                             {tokens, heads, {"Dv", a.value.shape[2]}})) {
        return r;
    }
    return check_shape(
        "topk_indices", a.topk_indices,
        {tokens, {"N2", a.key.shape[1]}, {"select_block_count", a.select_block_count}});
}

}  // namespace

std::optional<Rejection> validate_nsa_compress_attention(const Args* args) {
    if (args == nullptr) return absent("args");
    const Args& a = *args;
    if (auto rejection = check_present(a)) return rejection;
    if (auto rejection = check_layout("input_layout", a.input_layout)) return rejection;
    if (auto rejection = check_ranks({{"query", &a.query, 3},
                                      {"key", &a.key, 3},
                                      {"value", &a.value, 3},
                                      {"softmax_max", &a.softmax_max, 3},
                                      {"softmax_sum", &a.softmax_sum, 3},
                                      {"attention_out", &a.attention_out, 3},
                                      {"topk_indices", &a.topk_indices, 3}})) {
        return rejection;
    }
    if (auto rejection = check_dtypes(a)) return rejection;
    if (auto rejection = check_attributes(a)) return rejection;
    if (auto rejection = check_query(a)) return rejection;
    if (auto rejection = check_key(a)) return rejection;
    if (auto rejection = check_value(a)) return rejection;
    if (auto rejection = check_products(a)) return rejection;
    if (auto rejection = check_all_lengths(a)) return rejection;
    if (auto rejection = check_masks(a)) return rejection;
    return check_outputs(a);
}

}  // namespace attncheck::impl
