// The rulings on calls of NsaCompressAttention.
#include <cmath>
#include <limits>
#include <string_view>

#include "active_mutant.h"
#include "compress_attention_problem.h"
#include "constraints.h"
#include "ruling.h"

namespace attncheck::mutants {

namespace {

using Args = attncheck_nsa_compress_attention_args;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLongestCompressed = 14000;

int rule_on_absence(const Args& a, Ruling& ruling) {
    for (const attncheck_tensor* tensor : {&a.query, &a.key, &a.value})
        if (tensor->data == nullptr) return ATTNCHECK_ERR_NULLPTR;
    for (const attncheck_int_array* lengths : {&a.actual_seq_q_len, &a.actual_cmp_seq_kv_len})
        if (lengths->values == nullptr) return ATTNCHECK_ERR_NULLPTR;
    if (a.actual_sel_seq_kv_len.values == nullptr) {
        if (!on<"NCA-VAL-x03">()) return ATTNCHECK_ERR_NULLPTR;
        ruling.is_undefined = true;
    }
    if (a.input_layout == nullptr) return ATTNCHECK_ERR_NULLPTR;
    for (const attncheck_tensor* tensor :
         {&a.softmax_max, &a.softmax_sum, &a.attention_out, &a.topk_indices})
        if (tensor->data == nullptr) return ATTNCHECK_ERR_NULLPTR;
    return ATTNCHECK_OK;
}

void rule_on_types(const Args& a, Ruling& ruling) {
    ruling.require(std::string_view(a.input_layout) == "TND",
                   on<"NCA-VAL-x22">() && is_tnd_in_any_case(a.input_layout));
    for (const attncheck_tensor* tensor : {&a.query, &a.key, &a.value, &a.softmax_max,
                                           &a.softmax_sum, &a.attention_out, &a.topk_indices})
        ruling.require(tensor->rank == 3);
    const std::int32_t type = a.query.dtype;
    ruling.require(is_half_type(type));
    ruling.require(a.key.dtype == type);
    ruling.require(a.value.dtype == type, on<"NCA-VAL-x23">() && is_half_type(a.value.dtype));
    ruling.require(a.attention_out.dtype == type);
    ruling.require(a.topk_indices.dtype == ATTNCHECK_INT32);
    for (const attncheck_tensor* tensor : {&a.softmax_max, &a.softmax_sum})
        ruling.require(tensor->dtype == ATTNCHECK_FLOAT32);
}

bool is_multiple_of_16(std::int64_t value, std::int64_t most) {
    return in(value, 16, most) && value % 16 == 0;
}

/// A defect reads the low byte only.
bool fits_in_a_byte(std::int64_t value, std::int64_t most) {
    return on<"NCA-VAL-x11">() && is_multiple_of_16(value & 0xff, most);
}

void rule_on_attributes(const Args& a, Ruling& ruling) {
    ruling.require(std::isfinite(static_cast<float>(a.scale_value)));
    ruling.require(in(a.sparse_mode, 0, 1), on<"NCA-VAL-x17">());
    const std::int64_t l = a.compress_block_size, d = a.compress_stride, b = a.select_block_size;
    ruling.require(is_multiple_of_16(l, 128), fits_in_a_byte(l, 128));
    ruling.require(is_multiple_of_16(d, 64), fits_in_a_byte(d, 64) ||
                                                 (on<"NCA-VAL-x15">() && d == 0) ||
                                                 (on<"NCA-VAL-x26">() && d > 64));
    ruling.require(is_multiple_of_16(b, 128), fits_in_a_byte(b, 128));
    ruling.refuse(on<"NCA-VAL-x12">() && (l == 128 || b == 128));
    const std::int64_t k = a.select_block_count;
    ruling.require(in(k, 1, 32), (on<"NCA-VAL-x15">() && k == 0) ||
                                     (on<"NCA-VAL-x16">() && k == 33) ||
                                     (on<"NCA-VAL-x11">() && in(k & 0xff, 1, 32)));
    if (ruling.is_settled()) return;
    ruling.require(d <= l, on<"NCA-VAL-x14">());
    ruling.require(l <= b, on<"NCA-VAL-x13">());
    ruling.require(b % d == 0, on<"VAL-30">());
    ruling.refuse(on<"VAL-30">() && l % d != 0);
}

/// The product of positive extents is an int64.
bool product_fits(std::int64_t a, std::int64_t b, std::int64_t c) {
    return a <= kNoLimit / b && a * b <= kNoLimit / c;
}

/// Ranks are right already.
void rule_on_shapes(const Args& a, Ruling& ruling) {
    const std::int64_t t1 = a.query.shape[0], n1 = a.query.shape[1], d = a.query.shape[2];
    const std::int64_t rows = a.key.shape[0], n2 = a.key.shape[1], dv = a.value.shape[2];
    ruling.require(t1 >= 1 && n1 >= 1 && rows >= 1 && n2 >= 1);
    ruling.require(in(d, 1, 768), on<"NCA-VAL-x10">() && d > 768);
    ruling.require(a.head_num == n1, on<"NCA-VAL-x08">());
    ruling.require(a.key.shape[2] == d);
    ruling.require(a.value.shape[0] == rows && a.value.shape[1] == n2 && dv >= 1);
    ruling.require(dv <= d, on<"NCA-VAL-x09">());
    if (!ruling.is_legal) return;
    ruling.require(product_fits(t1, n1, d) && product_fits(t1, n1, 8) && product_fits(rows, n2, d));
    ruling.require(n1 % n2 == 0);
    if (!ruling.is_legal) return;
    const std::int64_t group = n1 / n2;
    const bool divides = group < 128 && 128 % group == 0;
    if (!divides && on<"NCA-05">() && group < 128) return;  // and computes
    ruling.require(divides, on<"VAL-34">());
}

/// One length array: at least one entry, non-negative, non-decreasing, the last entry not beyond
/// the tensor.
void rule_on_lengths(const attncheck_int_array& lengths, std::int64_t tokens, std::int64_t most,
                     Ruling& ruling) {
    ruling.require(lengths.size >= 1);
    if (!ruling.is_legal) return;
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        const std::int64_t end = lengths.values[b];
        ruling.require(end >= previous,
                       b == 0 ? on<"NCA-VAL-35">() : on<"NCA-VAL-07">() && end >= 0);
        if (end >= previous && previous >= 0)
            ruling.require(end - previous <= most, on<"NCA-VAL-x04">());
        ruling.refuse(on<"NCA-VAL-x18">() && end == previous);
        if (!ruling.is_legal) return;
        previous = end;
    }
    ruling.require(previous <= tokens, on<"NCA-VAL-x01">());
    ruling.refuse(on<"NCA-VAL-x24">() && previous < tokens);
}

/// K candidates at least in every sequence that has queries or compressed keys, and the cumulative
/// numbers of candidates in actual_sel_seq_kv_len.
void rule_on_candidates(const Args& a, Ruling& ruling) {
    if (ruling.is_settled()) return;
    const std::int64_t is_m = a.select_block_size / a.compress_stride;
    const auto candidates = [is_m](std::int64_t length) { return (length + is_m - 1) / is_m; };
    const std::int64_t most = candidates(longest(a.actual_cmp_seq_kv_len));
    std::int64_t first_query = 0, first_key = 0, sum = 0;
    for (std::int64_t b = 0; b < a.actual_seq_q_len.size; ++b) {
        const std::int64_t queries = a.actual_seq_q_len.values[b] - first_query,
                           keys = a.actual_cmp_seq_kv_len.values[b] - first_key;
        first_query += queries;
        first_key += keys;
        if (queries > 0 || keys > 0)
            ruling.require(candidates(keys) >= a.select_block_count,
                           (on<"NCA-10">() && most >= a.select_block_count) ||
                               (on<"NCA-VAL-x27">() && keys == 0) ||
                               (on<"NCA-VAL-x28">() && b > 0));
        sum += candidates(keys);
        const bool is_last = b + 1 == a.actual_seq_q_len.size;
        ruling.require(a.actual_sel_seq_kv_len.values[b] == sum,
                       on<"NCA-VAL-x02">() || (on<"NCA-VAL-x29">() && !is_last));
    }
}

void rule_on_mask(const attncheck_tensor& mask, std::int64_t rows, std::int64_t columns,
                  bool overlooks_extents, Ruling& ruling) {
    if (mask.data == nullptr) return;
    ruling.require(mask.rank == 2);
    ruling.require(mask.dtype == ATTNCHECK_BOOL || mask.dtype == ATTNCHECK_UINT8,
                   on<"NCA-VAL-x07">() && mask.dtype == ATTNCHECK_FLOAT16);
    ruling.refuse(on<"NCA-VAL-x21">() && mask.dtype == ATTNCHECK_UINT8);
    if (ruling.is_settled()) return;
    ruling.require(has_extents(mask, {rows, columns}), overlooks_extents);
}

void rule_on_masks(const Args& a, Ruling& ruling) {
    if (ruling.is_settled()) return;
    const std::int64_t queries = longest(a.actual_seq_q_len),
                       keys = longest(a.actual_cmp_seq_kv_len),
                       is_m = a.select_block_size / a.compress_stride;
    rule_on_mask(a.atten_mask, queries, keys, on<"NCA-VAL-x05">(), ruling);
    rule_on_mask(a.topk_mask, queries, (keys + is_m - 1) / is_m, on<"NCA-VAL-x06">(), ruling);
}

void rule_on_outputs(const Args& a, Ruling& ruling) {
    const std::int64_t t1 = a.query.shape[0], n1 = a.query.shape[1];
    const bool overlooked = on<"NCA-VAL-x20">();
    for (const attncheck_tensor* tensor : {&a.softmax_max, &a.softmax_sum})
        ruling.require(has_extents(*tensor, {t1, n1, 8}), overlooked);
    ruling.require(has_extents(a.attention_out, {t1, n1, a.value.shape[2]}), overlooked);
    ruling.require(has_extents(a.topk_indices, {t1, a.key.shape[1], a.select_block_count}),
                   overlooked);
}

void fill(const Args& a, CompressAttentionProblem& p) {
    p.type = a.query.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16;
    p.query_tokens = a.query.shape[0], p.num_query_heads = a.query.shape[1];
    p.num_kv_heads = a.key.shape[1];
    p.head_dim = a.query.shape[2], p.value_dim = a.value.shape[2];
    p.compress_block = a.compress_block_size, p.compress_stride = a.compress_stride;
    p.select_block = a.select_block_size, p.list_size = a.select_block_count;
    p.sparse_mode = a.sparse_mode;
    p.scale = static_cast<float>(a.scale_value);
    const attncheck_int_array &queries = a.actual_seq_q_len, &keys = a.actual_cmp_seq_kv_len;
    p.query_ends.assign(queries.values, queries.values + queries.size);
    p.key_ends.assign(keys.values, keys.values + keys.size);
    p.query = view_of(a.query), p.key = view_of(a.key), p.value = view_of(a.value);
    p.output = view_of(a.attention_out), p.topk = view_of<std::int32_t>(a.topk_indices);
    p.row_max = view_of<float>(a.softmax_max), p.row_sum = view_of<float>(a.softmax_sum);
    p.has_mask = a.atten_mask.data != nullptr;
    if (p.has_mask) p.mask = view_of<std::uint8_t>(a.atten_mask);
    p.has_topk_mask = a.topk_mask.data != nullptr;
    if (p.has_topk_mask) p.topk_mask = view_of<std::uint8_t>(a.topk_mask);
}

}  // namespace

int accept(const Args* args, CompressAttentionProblem& problem) {
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    const Args& a = *args;
    if (on<"NCA-VAL-x25">()) touch_early(a.attention_out);
    Ruling ruling;
    if (const int status = rule_on_absence(a, ruling)) return status;
    rule_on_types(a, ruling);
    rule_on_attributes(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    rule_on_shapes(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    rule_on_lengths(a.actual_seq_q_len, a.query.shape[0], kNoLimit, ruling);
    rule_on_lengths(a.actual_cmp_seq_kv_len, a.key.shape[0], kLongestCompressed, ruling);
    for (const attncheck_int_array* lengths : {&a.actual_cmp_seq_kv_len, &a.actual_sel_seq_kv_len})
        ruling.require(lengths->values == nullptr || lengths->size == a.actual_seq_q_len.size,
                       on<"NCA-VAL-x19">());
    rule_on_candidates(a, ruling);
    rule_on_masks(a, ruling);
    rule_on_outputs(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    problem.is_undefined = ruling.is_undefined;
    if (!ruling.is_undefined) fill(a, problem);
    return ATTNCHECK_OK;
}

}  // namespace attncheck::mutants
