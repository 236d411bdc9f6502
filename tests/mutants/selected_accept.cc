// The rulings on calls of NsaSelectedAttention and its gradient.
#include <cmath>
#include <string_view>
#include <vector>

#include "active_mutant.h"
#include "constraints.h"
#include "ruling.h"
#include "selected_problem.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{2} << 20, kMaxLength = std::int64_t{128} << 10;

/// What both directions take, under one name each.
struct Arguments {
    bool is_gradient = false;
    attncheck_tensor query, key, value, output, output_grad, row_max, row_sum, topk, mask;
    attncheck_tensor dq, dk, dv;
    attncheck_int_array query_ends, key_ends;
    double scale = 1;
    std::int64_t head_num = 0, block_size = 0, block_count = 0, sparse_mode = 0;
    const char* layout = nullptr;

    /// In the order of the argument structure; the layout comes before the outputs.
    std::vector<const attncheck_tensor*> inputs() const {
        if (!is_gradient) return {&query, &key, &value, &topk};
        return {&query, &key, &value, &output, &output_grad, &row_max, &row_sum, &topk};
    }
    std::vector<const attncheck_tensor*> outputs() const {
        if (!is_gradient) return {&row_max, &row_sum, &output};
        return {&dq, &dk, &dv};
    }
};

Arguments gathered(const attncheck_nsa_selected_attention_args& args) {
    Arguments a{};
    const auto& [query, key, value, topk, mask, query_ends, key_ends, scale, head_num, layout, mode,
                 size, count, row_max, row_sum, output] = args;
    a.query = query, a.key = key, a.value = value, a.topk = topk, a.mask = mask;
    a.query_ends = query_ends, a.key_ends = key_ends;
    a.scale = scale, a.head_num = head_num, a.layout = layout;
    a.sparse_mode = mode, a.block_size = size, a.block_count = count;
    a.row_max = row_max, a.row_sum = row_sum, a.output = output;
    return a;
}

Arguments gathered(const attncheck_nsa_selected_attention_grad_args& args) {
    Arguments a{};
    const auto& [query, key, value, output, output_grad, row_max, row_sum, topk, query_ends,
                 key_ends, mask, scale, size, count, head_num, layout, mode, dq, dk, dv] = args;
    a.is_gradient = true;
    a.query = query, a.key = key, a.value = value, a.topk = topk, a.mask = mask;
    a.query_ends = query_ends, a.key_ends = key_ends;
    a.scale = scale, a.head_num = head_num, a.layout = layout;
    a.sparse_mode = mode, a.block_size = size, a.block_count = count;
    a.row_max = row_max, a.row_sum = row_sum, a.output = output, a.output_grad = output_grad;
    a.dq = dq, a.dk = dk, a.dv = dv;
    return a;
}

int rule_on_absence(const Arguments& a, Ruling& ruling) {
    if (on<"NS-VAL-x36">() && a.query.data != nullptr && !is_half_type(a.query.dtype))
        return ATTNCHECK_ERR_INVALID;
    for (const attncheck_tensor* tensor : a.inputs()) {
        if (tensor->data != nullptr) continue;
        const bool overlooked = on<"NS-VAL-x23">() && a.is_gradient && tensor == &a.output;
        if (!overlooked) return ATTNCHECK_ERR_NULLPTR;
        ruling.is_undefined = true;
    }
    for (const attncheck_int_array* lengths : {&a.query_ends, &a.key_ends}) {
        if (lengths->values != nullptr) continue;
        const bool misnamed = on<"NS-VAL-x37">() && lengths->size == 0;
        return misnamed ? ATTNCHECK_ERR_INVALID : ATTNCHECK_ERR_NULLPTR;
    }
    if (a.layout == nullptr) return ATTNCHECK_ERR_NULLPTR;
    for (const attncheck_tensor* tensor : a.outputs())
        if (tensor->data == nullptr) return ATTNCHECK_ERR_NULLPTR;
    return ATTNCHECK_OK;
}

void rule_on_types(const Arguments& a, Ruling& ruling) {
    const std::string_view layout = a.layout;
    ruling.require(layout == "TND", on<"NS-VAL-x44">() && is_tnd_in_any_case(a.layout));
    for (const attncheck_tensor* tensor : a.inputs())  // absent here: only under a defect
        ruling.require(tensor->data == nullptr || tensor->rank == 3);
    for (const attncheck_tensor* tensor : a.outputs()) ruling.require(tensor->rank == 3);
    const std::int32_t type = a.query.dtype;
    ruling.require(is_half_type(type));
    ruling.require(a.key.dtype == type);
    ruling.require(a.value.dtype == type, on<"NS-VAL-x33">() && is_half_type(a.value.dtype));
    ruling.require(a.output.data == nullptr || a.output.dtype == type);
    if (a.is_gradient)
        for (const attncheck_tensor* tensor : {&a.output_grad, &a.dq, &a.dk, &a.dv})
            ruling.require(tensor->dtype == type);
    ruling.require(a.topk.dtype == ATTNCHECK_INT32,
                   on<"NS-VAL-x25">() && a.topk.dtype == ATTNCHECK_INT64);
    ruling.require(a.row_max.dtype == ATTNCHECK_FLOAT32 && a.row_sum.dtype == ATTNCHECK_FLOAT32);
}

void rule_on_attributes(const Arguments& a, Ruling& ruling) {
    const bool overlooks_scale = (on<"NS-VAL-x17">() && std::isnan(a.scale)) ||
                                 (on<"NS-VAL-x18">() && std::isfinite(a.scale));
    ruling.require(std::isfinite(static_cast<float>(a.scale)), overlooks_scale);
    ruling.refuse(on<"NS-VAL-x19">() && a.scale == 0);
    ruling.refuse(on<"NS-VAL-x20">() && a.scale < 0);
    ruling.require(in(a.head_num, 1, 128), on<"VAL-11">() && a.head_num > 128);
    ruling.require(a.sparse_mode == 0 || a.sparse_mode == 2,
                   on<"NS-VAL-x10">() && a.sparse_mode == 1);
    ruling.require(a.block_size % 16 == 0, on<"NS-VAL-x15">() && a.block_size % 8 == 0);
    ruling.require(in(a.block_size, 1, 128), on<"NS-VAL-x14">() && a.block_size == 0);
    ruling.refuse(on<"NS-VAL-x51">() && a.block_count == 32);
    ruling.require(in(a.block_count, 1, 32), (on<"NS-VAL-x14">() && a.block_count == 0) ||
                                                 (on<"NS-VAL-x16">() && a.block_count == 33));
}

bool is_head_dim(std::int64_t extent) { return extent == 128 || extent == 192; }

/// Tensors of rank 3; ranks are right already.
void rule_on_shapes(const Arguments& a, Ruling& ruling) {
    const std::int64_t t1 = a.query.shape[0], n1 = a.query.shape[1], d = a.query.shape[2];
    const std::int64_t t2 = a.key.shape[0], n2 = a.key.shape[1], dv = a.value.shape[2];
    const bool overlooks_tokens = on<"NS-VAL-x46">();
    ruling.require(in(t1, 1, kMaxTokens), overlooks_tokens && t1 > kMaxTokens);
    ruling.require(in(t2, 1, kMaxTokens), overlooks_tokens && t2 > kMaxTokens);
    ruling.require(in(n1, 1, 128), on<"VAL-11">() && n1 > 128);
    ruling.require(in(n2, 1, 128), on<"VAL-11">() && n2 > 128);
    ruling.require(is_head_dim(d), on<"NS-VAL-x13">() && d == 64);
    ruling.require(a.head_num == n1, on<"NS-VAL-x11">());
    ruling.require(a.key.shape[2] == d);
    if (n2 < 1) return;
    ruling.require(n1 % n2 == 0, on<"NS-VAL-x38">());
    ruling.require(n1 / n2 <= 32, on<"VAL-11">());
    ruling.refuse(on<"NS-VAL-x32">() && n1 / n2 == 32);
    ruling.require(a.value.shape[0] == t2 && a.value.shape[1] == n2);
    ruling.require(is_head_dim(dv), on<"NS-VAL-x13">() && dv == 64);
    ruling.require(dv <= d, on<"NS-VAL-x12">());
    ruling.refuse(on<"NS-VAL-x43">() && dv == 192);
    if (a.is_gradient) {
        ruling.require(has_extents(a.output, {t1, n1, dv}), a.output.data == nullptr);
        ruling.require(has_extents(a.output_grad, {t1, n1, dv}), on<"NS-VAL-x42">());
        ruling.require(has_extents(a.row_max, {t1, n1, 8}));
        ruling.require(has_extents(a.row_sum, {t1, n1, 8}));
    }
    ruling.require(a.topk.shape[2] == a.block_count);
    ruling.require(a.topk.shape[0] == t1 && a.topk.shape[1] == n2,
                   a.is_gradient ? on<"NS-VAL-x45">() : on<"VAL-09">());
}

/// One length array: at least one entry, non-negative, non-decreasing, at most 128 Ki per
/// sequence, the last entry not beyond the tensor.
void rule_on_lengths(const attncheck_int_array& lengths, std::int64_t tokens, bool is_gradient,
                     Ruling& ruling) {
    ruling.require(lengths.size >= 1);
    if (is_gradient) {
        ruling.require(lengths.size <= kMaxTokens);
        ruling.refuse(on<"NS-VAL-x35">() && lengths.size > 1024);
    } else {
        ruling.require(lengths.size <= 1024, on<"NS-VAL-x34">());
    }
    if (!ruling.is_legal) return;
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        const std::int64_t end = lengths.values[b];
        ruling.require(end >= previous, b == 0 ? on<"NS-VAL-35">() : on<"NS-VAL-07">() && end >= 0);
        if (end >= previous && previous >= 0)
            ruling.require(end - previous <= kMaxLength, on<"NS-VAL-x47">());
        ruling.refuse(on<"NS-VAL-x22">() && end == previous);
        if (!ruling.is_legal) return;
        previous = end;
    }
    ruling.require(previous <= tokens, on<"NS-VAL-x28">());
    ruling.refuse(on<"NS-VAL-x41">() && previous < tokens);
}

/// S_kv of every sequence with keys is a multiple of B and at least B*K.
void rule_on_blocks(const Arguments& a, Ruling& ruling) {
    if (ruling.is_settled()) return;
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < a.key_ends.size; ++b) {
        const std::int64_t length = a.key_ends.values[b] - previous;
        previous = a.key_ends.values[b];
        if (length == 0) continue;
        const std::int64_t total = a.key_ends.values[a.key_ends.size - 1];
        ruling.require(
            length % a.block_size == 0,
            on<"NS-VAL-x01">() || (on<"NS-VAL-x48">() && total % a.block_size == 0));
        ruling.require(length >= a.block_size * a.block_count,
                       on<"NS-VAL-x02">() ||
                           (on<"NS-VAL-x49">() && total >= a.block_size * a.block_count));
    }
}

void rule_on_mask(const Arguments& a, Ruling& ruling) {
    ruling.refuse(on<"NS-VAL-x40">() && a.mask.data == nullptr && a.sparse_mode == 2);
    if (a.mask.data == nullptr) return;
    ruling.refuse(on<"NS-VAL-x39">() && a.sparse_mode == 0);
    ruling.require(a.mask.rank == 2, on<"NS-VAL-x08">() && a.mask.rank == 3);
    const bool is_byte = a.mask.dtype == ATTNCHECK_BOOL || a.mask.dtype == ATTNCHECK_UINT8;
    ruling.require(is_byte, on<"NS-VAL-x07">() && a.mask.dtype == ATTNCHECK_FLOAT16);
    ruling.refuse(on<"NS-VAL-x24">() && a.is_gradient && a.mask.dtype == ATTNCHECK_UINT8);
    if (ruling.is_settled()) return;
    ruling.require(a.mask.shape[0] >= 0 && a.mask.shape[1] >= 0);
    const bool has_longest = has_extents(a.mask, {longest(a.query_ends), longest(a.key_ends)});
    const bool is_swapped = has_extents(a.mask, {longest(a.key_ends), longest(a.query_ends)});
    if (a.sparse_mode == 0)
        ruling.require(has_longest,
                       on<"NS-VAL-x06">() || (on<"NS-VAL-x50">() && is_swapped));
    if (a.sparse_mode == 2) ruling.refuse(on<"NS-VAL-x09">() && !has_longest);
}

void rule_on_outputs(const Arguments& a, Ruling& ruling) {
    const std::int64_t t1 = a.query.shape[0], n1 = a.query.shape[1], d = a.query.shape[2];
    const std::int64_t t2 = a.key.shape[0], n2 = a.key.shape[1], dv = a.value.shape[2];
    const bool overlooked = on<"NS-VAL-x26">();
    if (a.is_gradient) {
        ruling.require(has_extents(a.dq, {t1, n1, d}), overlooked);
        ruling.require(has_extents(a.dk, {t2, n2, d}), overlooked);
        ruling.require(has_extents(a.dv, {t2, n2, dv}), overlooked);
    } else {
        ruling.require(has_extents(a.row_max, {t1, n1, 8}), overlooked);
        ruling.require(has_extents(a.row_sum, {t1, n1, 8}), overlooked);
        ruling.require(has_extents(a.output, {t1, n1, dv}), overlooked);
    }
}

/// Entries of rows [begin, end) against the number of blocks.
void rule_on_entries(const Arguments& a, std::int64_t begin, std::int64_t end, std::int64_t blocks,
                     Ruling& ruling) {
    const auto topk = view_of<const std::int32_t>(a.topk);
    const std::int64_t all_blocks = a.key.shape[0] / a.block_size;
    for (std::int64_t t = begin; t < end; ++t)
        for (std::int64_t n = 0; n < topk.shape[1]; ++n)
            for (std::int64_t i = 0; i < topk.shape[2]; ++i) {
                const std::int64_t entry = *topk.at(t, n, i);
                const bool overlooked = entry < 0 ? on<"NS-VAL-x04">()
                                                  : (on<"NS-VAL-x03">() && entry == blocks) ||
                                                        (on<"NS-VAL-x05">() && entry < all_blocks);
                ruling.require(in(entry, 0, blocks - 1), overlooked);
            }
}

void rule_on_lists(const Arguments& a, Ruling& ruling) {
    if (ruling.is_settled()) return;
    std::int64_t first_query = 0, first_key = 0;
    for (std::int64_t b = 0; b < a.query_ends.size; ++b) {
        const std::int64_t queries_end = a.query_ends.values[b], keys_end = a.key_ends.values[b];
        const std::int64_t blocks = (keys_end - first_key) / a.block_size;
        if (blocks > 0 || on<"NS-VAL-x31">())
            rule_on_entries(a, first_query, queries_end, blocks, ruling);
        first_query = queries_end;
        first_key = keys_end;
    }
    if (on<"NS-VAL-x30">())
        rule_on_entries(a, first_query, a.query.shape[0], a.key.shape[0] / a.block_size, ruling);
}

void fill(const Arguments& a, SelectedProblem& p) {
    p.is_gradient = a.is_gradient;
    p.type = a.query.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16;
    p.query_tokens = a.query.shape[0], p.num_query_heads = a.query.shape[1];
    p.key_tokens = a.key.shape[0], p.num_kv_heads = a.key.shape[1];
    p.head_dim = a.query.shape[2], p.value_dim = a.value.shape[2];
    p.block_size = a.block_size, p.block_count = a.block_count, p.sparse_mode = a.sparse_mode;
    p.scale = static_cast<float>(a.scale);
    p.query_ends.assign(a.query_ends.values, a.query_ends.values + a.query_ends.size);
    p.key_ends.assign(a.key_ends.values, a.key_ends.values + a.key_ends.size);
    p.query = view_of(a.query), p.key = view_of(a.key), p.value = view_of(a.value);
    p.output = view_of(a.output), p.topk = view_of<std::int32_t>(a.topk);
    p.row_max = view_of<float>(a.row_max), p.row_sum = view_of<float>(a.row_sum);
    p.has_mask = a.mask.data != nullptr;
    if (p.has_mask) p.mask = view_of<const std::uint8_t>(a.mask);
    if (!a.is_gradient) return;
    p.output_grad = view_of(a.output_grad);
    p.dq = view_of(a.dq), p.dk = view_of(a.dk), p.dv = view_of(a.dv);
}

int rule(const Arguments& a, SelectedProblem& problem) {
    if (on<"NS-VAL-x27">()) touch_early(a.is_gradient ? a.dq : a.output);
    if (on<"NS-VAL-x29">()) allocate_early(a.query);
    Ruling ruling;
    if (const int status = rule_on_absence(a, ruling)) return status;
    rule_on_types(a, ruling);
    rule_on_attributes(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    rule_on_shapes(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    rule_on_lengths(a.query_ends, a.query.shape[0], a.is_gradient, ruling);
    ruling.require(a.key_ends.size == a.query_ends.size, on<"NS-VAL-x21">());
    rule_on_lengths(a.key_ends, a.key.shape[0], a.is_gradient, ruling);
    rule_on_blocks(a, ruling);
    rule_on_mask(a, ruling);
    rule_on_outputs(a, ruling);
    rule_on_lists(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    problem.is_undefined = ruling.is_undefined;
    if (!ruling.is_undefined) fill(a, problem);
    return ATTNCHECK_OK;
}

}  // namespace

int accept(const attncheck_nsa_selected_attention_args* args, SelectedProblem& problem) {
    return args == nullptr ? ATTNCHECK_ERR_NULLPTR : rule(gathered(*args), problem);
}

int accept(const attncheck_nsa_selected_attention_grad_args* args, SelectedProblem& problem) {
    return args == nullptr ? ATTNCHECK_ERR_NULLPTR : rule(gathered(*args), problem);
}

}  // namespace attncheck::mutants
