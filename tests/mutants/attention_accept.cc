// The rulings on Attention and its gradient, and where their tensors lie.
#include <algorithm>
#include <array>
#include <bit>

#include "attention_problem.h"
#include "first_plan.h"
#include "one_buffer.h"
#include "ruling.h"

namespace attncheck::mutants {

namespace {

bool is_ragged_list(const attncheck_int_array& list, std::int64_t rows, Ruling& ruling) {
    if (list.size < 1 || list.values[0] != 0) return false;
    for (std::int64_t b = 1; b < list.size; ++b) {
        ruling.require(list.values[b] >= list.values[b - 1], on<"AT-VAL-04">());
        if (!in(list.values[b], 0, rows)) return false;
    }
    return list.values[list.size - 1] == rows;
}

/// Types that take as many bytes.
bool same_size(std::int32_t a, std::int32_t b) {
    const auto bytes = [](std::int32_t type) {
        if (is_half_type(type)) return 2;
        return type == ATTNCHECK_FLOAT32 || type == ATTNCHECK_INT32 ? 4 : 0;
    };
    return bytes(a) != 0 && bytes(a) == bytes(b);
}

bool same_extents(const attncheck_tensor& a, const attncheck_tensor& b) {
    return a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

void rule_on_pairs(const attncheck_tensor& t, const std::int64_t (&full)[4], bool right_type,
                   Ruling& ruling, bool any_extents, bool any_type) {
    if (!t.data) return;
    ruling.require(t.rank == 4);
    if (ruling.is_settled()) return;
    ruling.require(right_type, any_type);
    for (int k = 0; k < 4; ++k)
        ruling.require(t.shape[k] == 1 || t.shape[k] == full[k], any_extents);
}

}  // namespace

NeutralArguments arguments_of(const attncheck_attention_args& a) {
    NeutralArguments n;
    n.query = a.query, n.key = a.key, n.value = a.value, n.out = a.out, n.lse = a.lse;
    n.cu_seqlens_q = a.cu_seqlens_q, n.cu_seqlens_kv = a.cu_seqlens_kv, n.kv_length = a.kv_length;
    n.bias = a.bias, n.mask = a.mask, n.sink = a.sink;
    n.scale = a.scale, n.softcap = a.softcap;
    n.window_left = a.window_left, n.window_right = a.window_right, n.align = a.align;
    return n;
}

NeutralArguments arguments_of(const attncheck_attention_grad_args& a) {
    NeutralArguments n;
    n.gradient = true;
    n.query = a.query, n.key = a.key, n.value = a.value, n.out = a.out, n.lse = a.lse;
    n.cu_seqlens_q = a.cu_seqlens_q, n.cu_seqlens_kv = a.cu_seqlens_kv, n.kv_length = a.kv_length;
    n.bias = a.bias, n.mask = a.mask, n.sink = a.sink;
    n.scale = a.scale, n.softcap = a.softcap;
    n.window_left = a.window_left, n.window_right = a.window_right, n.align = a.align;
    n.dout = a.dout, n.dq = a.dq, n.dk = a.dk, n.dv = a.dv, n.dbias = a.dbias, n.dsink = a.dsink;
    return n;
}

int accept(const NeutralArguments& a) {
    Ruling ruling;
    const bool packed = a.cu_seqlens_q.values != nullptr;
    for (const attncheck_tensor* t : {&a.query, &a.key, &a.value, &a.out}) ruling.require(t->data);
    if (a.gradient)
        for (const attncheck_tensor* t : {&a.dout, &a.dq, &a.dk, &a.dv}) ruling.require(t->data);
    for (const attncheck_int_array* list : {&a.cu_seqlens_q, &a.cu_seqlens_kv, &a.kv_length})
        ruling.require(list->values || list->size == 0);
    ruling.require(packed == (a.cu_seqlens_kv.values != nullptr));
    const int rank = packed ? 3 : 4, head = rank - 2, channel = rank - 1;
    for (const attncheck_tensor* t : {&a.query, &a.key, &a.value, &a.out})
        ruling.require(t->rank == rank);
    const std::int32_t type = a.query.dtype;
    ruling.require(is_half_type(type) || type == ATTNCHECK_FLOAT32);
    for (const attncheck_tensor* t : {&a.key, &a.value, &a.out}) ruling.require(t->dtype == type);
    if (ruling.is_settled()) return ATTNCHECK_ERR_INVALID;
    const std::int64_t *q = a.query.shape, *k = a.key.shape, *v = a.value.shape, *o = a.out.shape;
    const std::int64_t heads = q[head], kv_heads = k[head], dim = q[channel], value_dim = v[channel];
    ruling.require(std::min({heads, kv_heads, dim, value_dim}) >= 1);
    for (int d = 0; d < head; ++d) {
        ruling.require(q[d] >= 0 && k[d] >= 0 && v[d] == k[d] && o[d] == q[d]);
        if (d == 0 && !packed) ruling.require(q[0] == k[0]);
    }
    ruling.require(k[channel] == dim && v[head] == kv_heads && o[head] == heads &&
                   o[channel] == value_dim);
    if (ruling.is_settled()) return ATTNCHECK_ERR_INVALID;
    ruling.require(heads % kv_heads == 0, on<"AT-VAL-01">());
    ruling.refuse(on<"AT-VAL-05">() && !packed && k[1] == 0);
    ruling.require(std::isfinite(static_cast<float>(a.scale)),
                   on<"AT-VAL-09">() && std::isnan(a.scale));
    ruling.require(std::isfinite(static_cast<float>(a.softcap)));
    ruling.require(a.softcap >= 0, on<"AT-VAL-02">());
    ruling.require(a.window_left >= -1 && a.window_right >= -1, on<"AT-VAL-07">());
    ruling.require(in(a.align, 0, 1), on<"AT-VAL-06">() && a.align == 2);
    if (packed) {
        ruling.require(is_ragged_list(a.cu_seqlens_q, q[0], ruling) &&
                       is_ragged_list(a.cu_seqlens_kv, k[0], ruling) &&
                       a.cu_seqlens_q.size == a.cu_seqlens_kv.size);
        ruling.require(!a.kv_length.values && !a.bias.data && !a.mask.data);
    } else {
        const std::int64_t full[] = {q[0], heads, q[1], k[1]};
        rule_on_pairs(a.bias, full,
                      a.bias.dtype == type || a.bias.dtype == ATTNCHECK_FLOAT32, ruling,
                      on<"AT-VAL-10">(),
                      on<"AT-VAL-x12">() && !a.gradient && same_size(a.bias.dtype, type));
        rule_on_pairs(a.mask, full, a.mask.dtype == ATTNCHECK_BOOL, ruling, false,
                      on<"AT-VAL-11">());
        if (a.kv_length.values) {
            ruling.require(a.kv_length.size == q[0]);
            for (std::int64_t b = 0; ruling.is_legal && b < a.kv_length.size; ++b)
                ruling.require(in(a.kv_length.values[b], 0, k[1]),
                               on<"AT-VAL-03">() && a.kv_length.values[b] > k[1]);
        }
    }
    if (a.sink.data)
        ruling.require(a.sink.rank == 1 && a.sink.dtype == ATTNCHECK_FLOAT32 &&
                       a.sink.shape[0] == heads);
    if (a.lse.data) {
        ruling.require(a.lse.rank == rank - 1 && a.lse.dtype == ATTNCHECK_FLOAT32);
        if (ruling.is_settled()) return ruling.is_legal ? 1 : int{ATTNCHECK_ERR_INVALID};
        ruling.require(packed ? has_extents(a.lse, {heads, q[0]})
                              : has_extents(a.lse, {q[0], heads, q[1]}),
                       on<"AT-VAL-08">());
    }
    if (a.gradient) {
        const std::pair<const attncheck_tensor*, const attncheck_tensor*> like[] = {
            {&a.dout, &a.out}, {&a.dq, &a.query}, {&a.dk, &a.key}, {&a.dv, &a.value}};
        for (const auto& [t, of] : like) {
            ruling.require(t->dtype == type, on<"ATG-VAL-x14">() && packed && t == &a.dout &&
                                                 same_size(t->dtype, type));
            ruling.require(same_extents(*t, *of));
        }
        if (a.dbias.data) {
            ruling.require(a.bias.data && same_extents(a.dbias, a.bias));
            ruling.require(a.dbias.dtype == a.bias.dtype,
                           on<"ATG-VAL-x13">() && same_size(a.dbias.dtype, a.bias.dtype));
        }
        if (a.dsink.data) {
            ruling.require(a.sink.data, on<"ATG-VAL-12">());
            if (a.sink.data)
                ruling.require(a.dsink.rank == 1 && a.dsink.dtype == ATTNCHECK_FLOAT32 &&
                               a.dsink.shape[0] == heads);
        }
    }
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    return ruling.is_undefined ? 1 : ATTNCHECK_OK;
}

void NeutralProblem::take_first_plan() {
    using Part = std::vector<double>;
    std::vector<Part> attributes{{scale},
                                 {softcap},
                                 {static_cast<double>(window_left)},
                                 {static_cast<double>(window_right)},
                                 {static_cast<double>(align)},
                                 Part(used.begin(), used.end()),
                                 Part(key.strides, key.strides + key.rank),
                                 Part(query_len.begin(), query_len.end()),
                                 Part(key_len.begin(), key_len.end()),
                                 {static_cast<double>(heads), static_cast<double>(kv_heads),
                                  static_cast<double>(dim), static_cast<double>(value_dim),
                                  static_cast<double>(packed), static_cast<double>(gradient)}};
    const auto without = [&](std::size_t attribute) {
        std::vector<Part> others = attributes;
        others[attribute].clear();
        return others;
    };
    if (on<"AT-x312">()) scale = first_with(without(0), [&] { return scale; });
    if (on<"AT-x313">()) softcap = first_with(without(1), [&] { return softcap; });
    if (on<"AT-x314">()) window_left = first_with(without(2), [&] { return window_left; });
    if (on<"AT-x315">()) window_right = first_with(without(3), [&] { return window_right; });
    if (on<"AT-x316">()) align = first_with(without(4), [&] { return align; });
    if (on<"AT-x317">()) used = first_with(without(5), [&] { return used; });
    if (on<"AT-x318">())
        std::ranges::copy(first_with(without(6), [&] { return std::to_array(key.strides); }),
                          key.strides);
    // A plan without an optional tensor serves calls that have it.
    const auto forget = [&](attncheck_tensor& forgotten) {
        std::vector<Part> others = attributes;
        for (const attncheck_tensor* t : {&bias, &mask, &sink, &lse})
            others.push_back(t == &forgotten ? Part{} : Part{static_cast<double>(t->data != nullptr)});
        if (!first_with(others, [&] { return forgotten.data != nullptr; })) forgotten.data = nullptr;
    };
    if (on<"AT-x330">()) forget(sink);
    if (on<"AT-x331">()) forget(mask);
    if (on<"AT-x332">()) forget(bias);
    if (on<"AT-x333">() && !gradient) forget(lse);
    if (on<"AT-x334">() && query.dtype != ATTNCHECK_FLOAT32) {
        const int type = first_with(attributes, [&] { return static_cast<int>(query.dtype); });
        for (attncheck_tensor* t : {&query, &key, &value}) t->dtype = static_cast<decltype(t->dtype)>(type);
    }
}

NeutralProblem::NeutralProblem(const NeutralArguments& args) : NeutralArguments(args) {
    packed = cu_seqlens_q.values != nullptr;
    if (on<"AT-x302">() && begins_inside(value, key))
        std::copy_n(key.strides, key.rank, value.strides);
    const int head = query.rank - 2;
    heads = query.shape[head], kv_heads = key.shape[head];
    dim = query.shape[head + 1], value_dim = value.shape[head + 1];
    batches = packed ? cu_seqlens_q.size - 1 : query.shape[0];
    for (std::int64_t b = 0; b < batches; ++b) {
        first_query.push_back(packed ? cu_seqlens_q.values[b] : 0);
        first_key.push_back(!packed ? 0
                            : on<"AT-16">() ? std::min(cu_seqlens_q.values[b], cu_seqlens_kv.values[b])
                                            : cu_seqlens_kv.values[b]);
        query_len.push_back(packed ? cu_seqlens_q.values[b + 1] - cu_seqlens_q.values[b]
                                   : query.shape[1]);
        key_len.push_back(packed ? cu_seqlens_kv.values[b + 1] - cu_seqlens_kv.values[b]
                                 : key.shape[1]);
        used.push_back(key_len.back());
        if (kv_length.values) used.back() = kv_length.values[on<"AT-06">() ? 0 : b];
        if (on<"WILD-36">() && window_right == 0 && window_left < 0) used.back() = key_len.back();
    }
    take_first_plan();
    scale_fp32 = static_cast<float>(scale), softcap_fp32 = static_cast<float>(softcap);
}

std::int64_t NeutralProblem::row_of(const attncheck_tensor& t, std::int64_t b, std::int64_t row,
                                    std::int64_t head, bool of_keys) const {
    const auto& first = of_keys ? first_key : first_query;
    const std::int64_t width = t.shape[t.rank - 1], all_heads = t.shape[t.rank - 2];
    const bool dense = (on<"WILD-28">() && !gradient && t.data == query.data) ||
                       (on<"AT-22">() && !gradient && t.data == value.data);
    const attncheck_tensor& by = on<"WILD-29">() && gradient && t.data == dout.data ? out : t;
    if (packed) {
        const std::int64_t at = first[static_cast<std::size_t>(b)] + row;
        return dense ? (at * all_heads + head) * width : at * by.strides[0] + head * by.strides[1];
    }
    if (dense) return ((b * t.shape[1] + row) * all_heads + head) * width;
    return b * by.strides[0] + row * by.strides[1] + head * by.strides[2];
}

std::int64_t NeutralProblem::lse_of(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (packed) {
        const std::int64_t first = on<"WILD-51">() && gradient ? 0 : first_query[static_cast<std::size_t>(b)];
        if (on<"WILD-12">() && gradient) return h * lse.shape[1] + first + i;
        return h * lse.strides[0] + (first + i) * lse.strides[1];
    }
    if (on<"WILD-12">() && gradient) return (b * heads + h) * lse.shape[2] + i;
    if (on<"AT-12">() && !gradient) return (b * lse.shape[2] + i) * heads + h;
    return b * lse.strides[0] + h * lse.strides[1] + i * lse.strides[2];
}

std::int64_t NeutralProblem::pair_of(const attncheck_tensor& t, std::int64_t b, std::int64_t h,
                                     std::int64_t i, std::int64_t j) {
    const std::int64_t index[] = {b, h, i, j};
    std::int64_t at = 0;
    for (int k = 0; k < 4; ++k)
        if (t.shape[k] != 1) at += index[k] * t.strides[k];
    return at;
}

bool NeutralProblem::in_window(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const bool narrow = on<"AT-x301">();
    const std::int64_t left = narrow ? static_cast<std::int32_t>(window_left) : window_left,
                       right = narrow ? static_cast<std::int32_t>(window_right) : window_right;
    const auto sequence = static_cast<std::size_t>(b);
    if (on<"WILD-50">() && !gradient && packed && window_left < 0 && window_right < 0)
        return j < used[sequence];
    const std::int64_t end = on<"AT-04">() ? used[sequence] : key_len[sequence];
    const bool bottom = align == 1 && !(on<"WILD-26">() && !gradient);
    const std::int64_t diagonal = i + (bottom ? end - query_len[sequence] : 0);
    const std::int64_t shorter = on<"AT-02">() && !gradient && window_left > 0;
    const std::int64_t longer = on<"AT-03">() && !gradient && window_right >= 0;
    if (j >= used[sequence]) return false;
    if (on<"AT-x306">() && !gradient && left >= 0 && right != 0 && !mask.data && !bias.data)
        return true;
    if (on<"AT-x307">() && !gradient && right == 0 && i + 1 == query_len[sequence] && end > i + 1)
        return true;
    if (on<"AT-x319">() && !gradient && right == 0 && mask.data && mask.shape[2] == 1 && i > 0)
        return in_window(b, 0, j);
    if (on<"AT-x303">() && !gradient && left >= 0) j = static_cast<std::int16_t>(j);
    const std::int64_t late = on<"AT-x310">() && !gradient && i >= 512;
    const std::int64_t wider = on<"AT-x308">() && !gradient;
    if (left >= 0 && j - diagonal < -left + shorter - late - wider) return false;
    return right < 0 || j - diagonal <= right + longer;
}

bool NeutralProblem::sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!in_window(b, i, j)) return false;
    if (on<"WILD-23">() && !gradient && mask.data && static_cast<std::int16_t>(j) < 0) return false;
    const bool ignored = on<"WILD-48">() && gradient && window_right != 0;
    if (mask.data && !ignored) {
        const bool shows = static_cast<const std::uint8_t*>(mask.data)[pair_of(mask, b, h, i, j)];
        if (shows == (on<"AT-10">() && !gradient)) return false;
    }
    return !bias.data || bias_at(b, h, i, j) != -kNeutralInfinity;
}

float NeutralProblem::bias_at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (on<"AT-08">() && !gradient) b = 0;
    std::int64_t at = pair_of(bias, b, h, i, j);
    if (on<"AT-09">() && !gradient && bias.shape[1] == 1 && bias.shape[0] > 1)
        at = pair_of(bias, (b + h) % bias.shape[0], 0, i, j);
    if (on<"AT-23">() && !gradient && is_half_type(bias.dtype)) {
        attncheck_tensor other = bias;
        other.dtype = bias.dtype == ATTNCHECK_FLOAT16 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
        return load(other, at);
    }
    return load(bias, at);
}

float NeutralProblem::sink_of(std::int64_t h) const {
    if (!sink.data) return -kNeutralInfinity;
    if (!gradient && ((on<"WILD-37">() && window_left >= 0) || (on<"WILD-39">() && heads >= 8)))
        return -kNeutralInfinity;
    if (on<"AT-15">() && !gradient) h = 0;
    float logit = load(sink, h * sink.strides[0]);
    if (on<"AT-13">() && !gradient) logit *= scale_fp32;
    if (on<"AT-24">() && !gradient && logit == -kNeutralInfinity) logit = 0;
    return logit;
}

float NeutralProblem::score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                            float* slope) const {
    std::int64_t from = b;
    if (on<"WILD-25">() && !gradient && !packed) {
        const std::int64_t rows = query_len[0];
        if (rows % 16 != 0 && i >= rows / 16 * 16) from = 0;
    }
    const std::int64_t q = row_of(query, b, i, h, false),
                       k = row_of(key, from, j, kv_head(h), true);
    const std::int64_t last = query.rank - 1;
    const std::int64_t q_step = on<"WILD-28">() && !gradient ? 1 : query.strides[last];
    float sum = 0;
    for (std::int64_t d = 0; d < dim; ++d)
        sum += load(query, q + d * q_step) * load(key, k + d * key.strides[last]);
    float s = sum * scale_fp32;
    const float own_bias = bias.data ? bias_at(b, h, i, j) : 0;
    if (on<"AT-05">() && !gradient) s += own_bias;
    if (slope) *slope = 1;
    if (softcap_fp32 > 0 && !(on<"AT-01">() && !gradient)) {
        const float part = std::tanh(s / softcap_fp32);
        if (slope && !on<"ATG-01">()) *slope = 1 - part * part;
        s = softcap_fp32 * part;
        if (on<"AT-07">() && !gradient) s = softcap_fp32 * std::tanh(s / softcap_fp32);
    }
    return on<"AT-05">() && !gradient ? s : s + own_bias;
}

}  // namespace attncheck::mutants
