#include "impl/operators/flash_attention/shapes.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace attncheck::impl {
namespace {

// What the two structs call the same.
template <class Args>
FlashCall common_fields(const Args& a) {
    FlashCall call{};
    call.query = &a.query;
    call.query_rope = &a.query_rope;
    call.key = &a.key;
    call.key_rope = &a.key_rope;
    call.value = &a.value;
    call.drop_mask = &a.drop_mask;
    call.padding_mask = &a.padding_mask;
    call.atten_mask = &a.atten_mask;
    call.softmax_max = &a.softmax_max;
    call.softmax_sum = &a.softmax_sum;
    call.prefix = &a.prefix;
    call.query_ends = &a.actual_seq_q_len;
    call.key_ends = &a.actual_seq_kv_len;
    call.query_start = &a.q_start_idx;
    call.key_start = &a.kv_start_idx;
    call.scale_value = a.scale_value;
    call.keep_prob = a.keep_prob;
    call.pre_tokens = a.pre_tokens;
    call.next_tokens = a.next_tokens;
    call.head_num = a.head_num;
    call.sparse_mode = a.sparse_mode;
    call.bias_type = a.pse_type;
    call.input_layout = a.input_layout;
    return call;
}

bool has_shape(const attncheck_tensor& tensor, std::initializer_list<std::int64_t> shape) {
    return tensor.rank == static_cast<int>(shape.size()) &&
           std::equal(shape.begin(), shape.end(), tensor.shape);
}

std::int64_t length_at(const attncheck_int_array& ends, std::int64_t b) {
    return ends.values[b] - (b == 0 ? 0 : ends.values[b - 1]);
}

// N1 * sum is at most 2^28 elements and N1 * num_pairs of TND 2^48: no overflow.
std::optional<BiasForm> flat_bias_form(const FlashCall& call, const FlashExtents& extents,
                                       const FlashLengths& lengths) {
    const std::int64_t count = call.bias->shape[0];
    if (count == extents.query_heads * lengths.key_sum) return BiasForm::kFlatKeys;
    if (count == lengths.num_pairs) return BiasForm::kFlatPairs;
    return std::nullopt;
}

}  // namespace

__int128 FlashCall::start_distance() const {
    const bool both = query_start->values != nullptr && query_start->size >= 1 &&
                      key_start->values != nullptr && key_start->size >= 1;
    if (!both) return 0;
    return static_cast<__int128>(key_start->values[0]) - query_start->values[0];
}

FlashCall flash_call(const attncheck_flash_attention_score_args& args) {
    FlashCall call = common_fields(args);
    call.bias = &args.real_shift;
    call.output = &args.attention_out;
    call.statistics_layout = args.softmax_out_layout;
    call.bias_name = "real_shift";
    call.output_name = "attention_out";
    call.statistics_layout_name = "softmax_out_layout";
    return call;
}

FlashCall flash_call(const attncheck_flash_attention_score_grad_args& args) {
    FlashCall call = common_fields(args);
    call.bias = &args.pse_shift;
    call.output = &args.attention_in;
    call.output_grad = &args.dy;
    call.query_grad = &args.dq;
    call.query_rope_grad = &args.dq_rope;
    call.key_grad = &args.dk;
    call.key_rope_grad = &args.dk_rope;
    call.value_grad = &args.dv;
    call.statistics_layout = args.softmax_in_layout;
    call.bias_name = "pse_shift";
    call.output_name = "attention_in";
    call.statistics_layout_name = "softmax_in_layout";
    return call;
}

std::optional<FlashLayout> parse_flash_layout(const char* name) {
    constexpr const char* kNames[] = {"BSH", "SBH", "BSND", "BNSD", "TND"};
    for (int i = 0; i < 5; ++i) {
        if (std::strcmp(name, kNames[i]) == 0) return static_cast<FlashLayout>(i);
    }
    return std::nullopt;
}

FlashAxes flash_axes(FlashLayout layout) {
    switch (layout) {
        case FlashLayout::kBsh:
            return {3, 0, 1, -1, 2};
        case FlashLayout::kSbh:
            return {3, 1, 0, -1, 2};
        case FlashLayout::kBsnd:
            return {4, 0, 1, 2, 3};
        case FlashLayout::kBnsd:
            return {4, 0, 2, 1, 3};
        case FlashLayout::kTnd:
            break;
    }
    return {3, -1, 0, 1, 2};
}

FlashExtents flash_extents(const FlashCall& call) {
    const FlashLayout layout = *parse_flash_layout(call.input_layout);
    const FlashAxes axes = flash_axes(layout);
    FlashExtents e{};
    e.layout = layout;
    e.batch = axes.batch < 0 ? call.query_ends->size : call.query->shape[axes.batch];
    e.query_len = call.query->shape[axes.position];
    e.key_len = call.key->shape[axes.position];
    e.query_heads = call.head_num;
    if (axes.head < 0) {
        e.head_dim = call.query->shape[axes.channel] / call.head_num;
        e.kv_heads = call.key->shape[axes.channel] / e.head_dim;
        e.value_dim = call.value->shape[axes.channel] / e.kv_heads;
    } else {
        e.head_dim = call.query->shape[axes.channel];
        e.kv_heads = call.key->shape[axes.head];
        e.value_dim = call.value->shape[axes.channel];
    }
    return e;
}

FlashSequence flash_sequence(const FlashCall& call, const FlashExtents& extents, std::int64_t b) {
    if (!extents.is_packed()) return {0, extents.query_len, 0, extents.key_len};
    const std::int64_t query_len = length_at(*call.query_ends, b),
                       key_len = length_at(*call.key_ends, b);
    return {call.query_ends->values[b] - query_len, query_len, call.key_ends->values[b] - key_len,
            key_len};
}

FlashLengths flash_lengths(const FlashCall& call, const FlashExtents& extents) {
    FlashLengths l{};
    l.same_query_len = l.same_key_len = l.square = true;
    if (!extents.is_packed()) {
        l.max_query_len = extents.query_len;
        l.max_key_len = extents.key_len;
        l.square = extents.query_len == extents.key_len;
        std::int64_t pairs = extents.query_len * extents.key_len;  // at most 2^40
        const bool fits =
            !__builtin_mul_overflow(pairs, extents.query_heads * extents.batch, &pairs);
        if (fits) l.num_pairs = pairs;
        return l;
    }
    std::int64_t pairs = 0;
    const FlashSequence first = flash_sequence(call, extents, 0);
    for (std::int64_t b = 0; b < extents.batch; ++b) {
        const FlashSequence s = flash_sequence(call, extents, b);
        l.max_query_len = std::max(l.max_query_len, s.query_len);
        l.max_key_len = std::max(l.max_key_len, s.key_len);
        l.same_query_len = l.same_query_len && s.query_len == first.query_len;
        l.same_key_len = l.same_key_len && s.key_len == first.key_len;
        l.square = l.square && s.query_len == s.key_len;
        l.query_sum += s.query_len;
        l.key_sum += s.key_len;
        pairs += s.query_len * s.key_len;  // the sum is at most T1 * T2 <= 2^40
    }
    l.num_pairs = extents.query_heads * pairs;
    return l;
}

std::optional<BiasForm> bias_form(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths) {
    if (!call.has_bias()) return BiasForm::kNone;
    const attncheck_tensor& bias = *call.bias;
    if (call.bias_type >= 2) {
        const bool legal = has_shape(bias, {extents.query_heads}) ||
                           has_shape(bias, {extents.batch, extents.query_heads});
        return legal ? std::optional(BiasForm::kSlopes) : std::nullopt;
    }
    if (bias.rank == 1 && extents.is_packed()) return flat_bias_form(call, extents, lengths);
    if (bias.rank != 4 || bias.shape[1] != extents.query_heads ||
        (bias.shape[0] != 1 && bias.shape[0] != extents.batch) ||
        bias.shape[3] != lengths.max_key_len) {
        return std::nullopt;
    }
    if (lengths.same_query_len && lengths.same_key_len &&
        (bias.shape[2] == lengths.max_query_len || bias.shape[2] == 1)) {
        return BiasForm::kFull;
    }
    if (bias.shape[2] != kCompressedBiasRows || !lengths.square) return std::nullopt;
    if (!extents.is_packed() && extents.query_len <= kCompressedBiasRows) return std::nullopt;
    return BiasForm::kCompressed;
}

std::optional<MaskForm> mask_form(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths) {
    if (!call.has_mask()) return MaskForm::kNone;
    constexpr std::int64_t kStored = 2048, kStoredWithPrefix = 3072;
    const attncheck_tensor& mask = *call.atten_mask;
    const std::int64_t mode = call.sparse_mode, batch = extents.batch, heads = extents.query_heads,
                       rows = lengths.max_query_len, cols = lengths.max_key_len;
    if (mode != 0 && mode != 1 && mode != 5) {
        const bool legal = has_shape(mask, {mode == 6 ? kStoredWithPrefix : kStored, kStored});
        return legal ? std::optional(MaskForm::kCompressed) : std::nullopt;
    }
    if (has_shape(mask, {batch, 1, rows, cols}) || has_shape(mask, {batch, heads, rows, cols}))
        return MaskForm::kPerEntry;
    const bool one_for_all = mode != 5 || batch == 1;
    if (one_for_all && has_shape(mask, {rows, cols})) return MaskForm::kPerEntry;
    if (mode == 5) return std::nullopt;
    if (has_shape(mask, {1, 1, rows, cols})) return MaskForm::kPerEntry;
    if (extents.is_packed() && has_shape(mask, {lengths.query_sum, lengths.key_sum}))
        return MaskForm::kPacked;
    return std::nullopt;
}

std::int64_t band_entry(const FlashCall& call, const FlashExtents& extents) {
    if (!extents.is_packed() || (call.sparse_mode != 7 && call.sparse_mode != 8)) return -1;
    for (std::int64_t i = 0; i < extents.batch; ++i) {
        const std::int64_t b = call.sparse_mode == 8 ? i : extents.batch - 1 - i;
        if (length_at(*call.query_ends, b) != 0) return b;
    }
    return -1;
}

}  // namespace attncheck::impl
