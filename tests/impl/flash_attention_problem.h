#ifndef ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_PROBLEM_H
#define ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_PROBLEM_H

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/kernels/half_formats.h"

// Problems of FlashAttentionScore and its gradient, and what plain loops in binary64 make of them.
namespace attncheck::impl {

using Index = std::vector<std::int64_t>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Storage { kPacked, kPermutedWithGaps, kReversed, kNumStorages };

// A tensor of any rank and element type in strided, poisoned storage.
struct AnyTensor {
    static constexpr std::uint8_t kPoison = 0x5a;

    std::int32_t dtype = ATTNCHECK_FLOAT32;
    Index shape, strides;
    std::int64_t origin = 1;  // an address that is aligned to an element only
    std::vector<std::uint8_t> bytes;
    bool present = false;

    AnyTensor() = default;
    AnyTensor(std::int32_t type, Index extents, Storage how)
        : dtype(type), shape(std::move(extents)), strides(shape.size()), present(true) {
        const std::size_t rank = shape.size();
        const bool packed = how == Storage::kPacked;
        std::int64_t step = how == Storage::kReversed ? 2 : 1;
        for (std::size_t i = rank; i-- > 0;) {
            const std::size_t dim = how == Storage::kPermutedWithGaps ? (i + 1) % rank : i;
            strides[dim] = step;
            step = step * std::max<std::int64_t>(shape[dim], 1) + (packed ? 0 : 3);
        }
        if (how == Storage::kReversed) {
            for (std::size_t dim = 0; dim < rank; ++dim) {
                origin += strides[dim] * std::max<std::int64_t>(shape[dim] - 1, 0);
                strides[dim] = -strides[dim];
            }
        }
        bytes.assign(static_cast<std::size_t>((step + 8) * width()), kPoison);
    }

    std::int64_t width() const {
        switch (dtype) {
            case ATTNCHECK_FLOAT32:
                return 4;
            case ATTNCHECK_FLOAT16:
            case ATTNCHECK_BFLOAT16:
                return 2;
            default:
                return 1;
        }
    }
    std::int64_t elements() const {
        std::int64_t count = present ? 1 : 0;
        for (const std::int64_t extent : shape) count *= extent;
        return count;
    }
    std::size_t at(const Index& index) const {
        std::int64_t offset = origin;
        for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
        return static_cast<std::size_t>(offset * width());
    }
    Index unravel(std::int64_t number) const {
        Index index(shape.size());
        for (std::size_t d = shape.size(); d-- > 0;) {
            index[d] = number % shape[d];
            number /= shape[d];
        }
        return index;
    }
    double get(const Index& index) const {
        const std::uint8_t* from = bytes.data() + at(index);
        float wide = 0.0f;
        std::uint16_t half = 0;
        switch (dtype) {
            case ATTNCHECK_FLOAT32:
                std::memcpy(&wide, from, 4);
                return wide;
            case ATTNCHECK_FLOAT16:
                std::memcpy(&half, from, 2);
                return widen_fp16(half);
            case ATTNCHECK_BFLOAT16:
                std::memcpy(&half, from, 2);
                return widen_bf16(half);
            case ATTNCHECK_FLOAT8_E5M2:
                return widen_fp16(static_cast<std::uint16_t>(*from << 8));
            case ATTNCHECK_FLOAT8_E4M3FN: {
                const int exponent = *from >> 3 & 15, fraction = *from & 7;
                const double sign = *from & 0x80 ? -1.0 : 1.0;
                if (exponent == 15 && fraction == 7) return kNan;
                return sign * (exponent == 0 ? std::ldexp(fraction, -9)
                                             : std::ldexp(8 + fraction, exponent - 10));
            }
            default:
                return *from;
        }
    }
    // fp8: `value` is the bit pattern.
    void set(const Index& index, double value) {
        std::uint8_t* to = bytes.data() + at(index);
        const float wide = static_cast<float>(value);
        std::uint16_t half = 0;
        switch (dtype) {
            case ATTNCHECK_FLOAT32:
                std::memcpy(to, &wide, 4);
                return;
            case ATTNCHECK_FLOAT16:
                half = narrow_fp16(wide);
                std::memcpy(to, &half, 2);
                return;
            case ATTNCHECK_BFLOAT16:
                half = narrow_bf16(wide);
                std::memcpy(to, &half, 2);
                return;
            default:
                *to = static_cast<std::uint8_t>(value);
        }
    }
    attncheck_tensor view() {
        attncheck_tensor made{};
        if (!present) return made;
        made.data = bytes.data() + origin * width();
        made.dtype = dtype;
        made.rank = static_cast<std::int32_t>(shape.size());
        for (std::size_t d = 0; d < shape.size(); ++d) {
            made.shape[d] = shape[d];
            made.strides[d] = strides[d];
        }
        return made;
    }
    template <class Draw>
    void fill(const Draw& draw) {
        for (std::int64_t i = 0; i < elements(); ++i) set(unravel(i), draw());
    }
    void poison() { std::fill(bytes.begin(), bytes.end(), kPoison); }
    // Bytes of no element that are not poison any more.
    std::int64_t touched_gaps() const {
        std::vector<bool> used(bytes.size());
        for (std::int64_t i = 0; i < elements(); ++i) {
            for (std::int64_t k = 0; k < width(); ++k)
                used[at(unravel(i)) + static_cast<std::size_t>(k)] = true;
        }
        std::int64_t count = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i) count += !used[i] && bytes[i] != kPoison;
        return count;
    }
    // Unit roundoff of the type, and the smallest step.
    double roundoff() const {
        return dtype == ATTNCHECK_FLOAT32 ? 0x1p-24 : dtype == ATTNCHECK_FLOAT16 ? 0x1p-11 : 0x1p-8;
    }
};

// What a case has: everything else is drawn from `seed`.
struct FlashShape {
    std::string layout = "BSND";
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;  // per sequence; else all alike
    std::int64_t spare_queries = 0, spare_keys = 0;              // TND: rows beyond
    std::int64_t kv_heads = 1, group_size = 1, head_dim = 8, value_dim = 8, rope_dim = 0;
    std::int32_t dtype = ATTNCHECK_FLOAT32;
    std::int32_t output_dtype = -1;  // of fp8 inputs
    bool has_mask = false;
    std::int64_t mode = 0, pre = 0, next = 0;
    enum MaskShape { kRank2, kShared, kPerBatch, kPerHead, kPackedSums } mask_shape = kRank2;
    std::vector<std::int64_t> prefix;
    std::int64_t bias_type = 1;
    enum BiasShape { kNoBias, kVector, kMatrix, kFull, kRow, kRows1024, kFlatKeys, kFlatPairs };
    BiasShape bias_shape = kNoBias;
    bool bias_per_batch = false;
    std::vector<std::int64_t> query_start, key_start;
    bool has_dropout = false;
    double keep_prob = 1.0;
    bool same_as_input = false;
    double scale = 0.3;

    bool packed() const { return layout == "TND"; }
    std::int64_t heads() const { return kv_heads * group_size; }
    std::int64_t batch() const { return static_cast<std::int64_t>(lengths.size()); }
};

struct FlashProblem {
    FlashShape shape;
    std::mt19937_64 random;
    std::int64_t max_queries = 0, max_keys = 0, sum_queries = 0, sum_keys = 0, pairs = 0;
    std::vector<std::int64_t> query_ends, key_ends;
    AnyTensor query, query_rope, key, key_rope, value, output, output_grad, bias, drop, mask;
    AnyTensor row_max, row_sum, dq, dq_rope, dk, dk_rope, dv;

    FlashProblem(FlashShape wanted, std::uint64_t seed);

    double normal() { return std::normal_distribution<double>()(random); }
    std::int64_t below(std::int64_t count) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    }
    Storage storage() {
        return static_cast<Storage>(below(static_cast<int>(Storage::kNumStorages)));
    }
    std::int64_t queries(std::int64_t b) const {
        return shape.lengths[static_cast<std::size_t>(b)].first;
    }
    std::int64_t keys(std::int64_t b) const {
        return shape.lengths[static_cast<std::size_t>(b)].second;
    }
    std::int64_t first_query(std::int64_t b) const {
        return query_ends[static_cast<std::size_t>(b)] - queries(b);
    }
    std::int64_t first_key(std::int64_t b) const {
        return key_ends[static_cast<std::size_t>(b)] - keys(b);
    }

    // flash_attention.md 2.1: the element (b, head, position, channel) of a tensor with `dim`
    // channels per head; `of_keys` says whose rows.
    Index element(bool of_keys, std::int64_t b, std::int64_t head, std::int64_t position,
                  std::int64_t dim, std::int64_t channel) const {
        if (shape.layout == "BSH") return {b, position, head * dim + channel};
        if (shape.layout == "SBH") return {position, b, head * dim + channel};
        if (shape.layout == "BSND") return {b, position, head, channel};
        if (shape.layout == "BNSD") return {b, head, position, channel};
        return {(of_keys ? first_key(b) : first_query(b)) + position, head, channel};
    }
    Index statistic(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t copy) const {
        if (!shape.packed()) return {b, head, i, copy};
        if (shape.same_as_input) return {first_query(b) + i, head, copy};
        const std::int64_t number = first_query(b) * shape.heads() + head * queries(b) + i;
        return {number / shape.heads(), number % shape.heads(), copy};
    }
    bool visible(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;
    double bias_of(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;
    bool kept(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;

    template <class Args>
    void fill_common(Args& a);
    attncheck_flash_attention_score_args forward_args();
    attncheck_flash_attention_score_grad_args gradient_args();

private:
    Index rows_shape(bool of_keys, std::int64_t heads, std::int64_t dim) const;
    void make_mask();
    void make_bias();
    std::int64_t prior_pairs(std::int64_t b) const {
        std::int64_t sum = 0;
        for (std::int64_t e = 0; e < b; ++e) sum += shape.heads() * queries(e) * keys(e);
        return sum;
    }
    std::int64_t band_batch() const {
        std::int64_t found = -1;
        for (std::int64_t b = 0; b < shape.batch(); ++b) {
            if (queries(b) != 0 && (shape.mode == 7 || found < 0)) found = b;
        }
        return found;
    }
};

inline FlashProblem::FlashProblem(FlashShape wanted, std::uint64_t seed)
    : shape(std::move(wanted)), random(seed) {
    for (const auto& [q, k] : shape.lengths) {
        sum_queries += q, sum_keys += k;
        pairs += shape.heads() * q * k;
        max_queries = std::max(max_queries, q), max_keys = std::max(max_keys, k);
        query_ends.push_back(sum_queries), key_ends.push_back(sum_keys);
    }
    const std::int64_t heads = shape.heads(), kv_heads = shape.kv_heads;
    const std::int32_t in = shape.dtype, out = shape.output_dtype < 0 ? in : shape.output_dtype;
    const auto rows = [&](std::int32_t type, bool of_keys, std::int64_t count, std::int64_t dim) {
        return AnyTensor(type, rows_shape(of_keys, count, dim), storage());
    };
    query = rows(in, false, heads, shape.head_dim);
    key = rows(in, true, kv_heads, shape.head_dim);
    value = rows(in, true, kv_heads, shape.value_dim);
    output = rows(out, false, heads, shape.value_dim);
    output_grad = rows(in, false, heads, shape.value_dim);
    dq = rows(out, false, heads, shape.head_dim);
    dk = rows(out, true, kv_heads, shape.head_dim);
    dv = rows(out, true, kv_heads, shape.value_dim);
    if (shape.rope_dim > 0) {
        query_rope = rows(in, false, heads, shape.rope_dim);
        key_rope = rows(in, true, kv_heads, shape.rope_dim);
        dq_rope = rows(in, false, heads, shape.rope_dim);
        dk_rope = rows(in, true, kv_heads, shape.rope_dim);
    }
    const Index statistics = shape.packed() ? Index{sum_queries + shape.spare_queries, heads, 8}
                                            : Index{shape.batch(), heads, max_queries, 8};
    row_max = AnyTensor(ATTNCHECK_FLOAT32, statistics, storage());
    row_sum = AnyTensor(ATTNCHECK_FLOAT32, statistics, storage());
    const bool fp8 = shape.output_dtype >= 0;
    for (AnyTensor* input : {&query, &key, &value, &output_grad, &query_rope, &key_rope}) {
        // Bit patterns below 0x40 are fp8 numbers of at most 2 (E4M3FN and E5M2 alike).
        input->fill([&] {
            return fp8 ? static_cast<double>(below(0x40) + (below(2) ? 0x80 : 0)) : normal();
        });
    }
    make_mask();
    make_bias();
    if (shape.has_dropout) {
        drop = AnyTensor(ATTNCHECK_UINT8, {2, (pairs + 15) / 16}, storage());
        drop.fill([&] { return static_cast<double>(below(256)); });
    }
}

inline Index FlashProblem::rows_shape(bool of_keys, std::int64_t heads, std::int64_t dim) const {
    const std::int64_t len = of_keys ? max_keys : max_queries, b = shape.batch();
    if (shape.layout == "BSH") return {b, len, heads * dim};
    if (shape.layout == "SBH") return {len, b, heads * dim};
    if (shape.layout == "BSND") return {b, len, heads, dim};
    if (shape.layout == "BNSD") return {b, heads, len, dim};
    const std::int64_t total =
        of_keys ? sum_keys + shape.spare_keys : sum_queries + shape.spare_queries;
    return {total, heads, dim};
}

inline void FlashProblem::make_mask() {
    if (!shape.has_mask) return;
    const std::int32_t type = below(2) ? ATTNCHECK_BOOL : ATTNCHECK_UINT8;
    const bool read = shape.mode == 0 || shape.mode == 1 || shape.mode == 5;
    if (!read) {  // contents that hide everything: nobody may look
        mask = AnyTensor(type, {shape.mode == 6 ? 3072 : 2048, 2048}, Storage::kPacked);
        std::fill(mask.bytes.begin(), mask.bytes.end(), std::uint8_t{1});
        return;
    }
    const std::int64_t b = shape.mask_shape == FlashShape::kShared ? 1 : shape.batch(),
                       heads = shape.mask_shape == FlashShape::kPerHead ? shape.heads() : 1;
    const Index extents = shape.mask_shape == FlashShape::kRank2 ? Index{max_queries, max_keys}
                          : shape.mask_shape == FlashShape::kPackedSums
                              ? Index{sum_queries, sum_keys}
                              : Index{b, heads, max_queries, max_keys};
    mask = AnyTensor(type, extents, storage());
    const std::int64_t one_in = below(3) == 0 ? 40 : 4;
    mask.fill([&] {
        return below(one_in) != 0 ? 0.0 : type == ATTNCHECK_BOOL ? 1.0 : 1.0 + below(255);
    });
}

inline void FlashProblem::make_bias() {
    using S = FlashShape;
    if (shape.bias_shape == S::kNoBias) return;
    const std::int64_t heads = shape.heads(), b = shape.bias_per_batch ? shape.batch() : 1;
    const std::int32_t type = shape.bias_type >= 2     ? ATTNCHECK_FLOAT32
                              : shape.output_dtype < 0 ? shape.dtype
                                                       : shape.output_dtype;
    const Index extents = shape.bias_shape == S::kVector   ? Index{heads}
                          : shape.bias_shape == S::kMatrix ? Index{shape.batch(), heads}
                          : shape.bias_shape == S::kFull   ? Index{b, heads, max_queries, max_keys}
                          : shape.bias_shape == S::kRow    ? Index{b, heads, 1, max_keys}
                          : shape.bias_shape == S::kRows1024 ? Index{b, heads, 1024, max_keys}
                          : shape.bias_shape == S::kFlatKeys ? Index{heads * sum_keys}
                                                             : Index{pairs};
    bias = AnyTensor(type, extents, storage());
    if (shape.bias_shape != S::kRows1024) {
        bias.fill([&] { return (shape.bias_type >= 2 ? 0.1 : 1.0) * normal(); });
        return;
    }
    // Depends on row - column, batch entry and head only.
    for (std::int64_t e = 0; e < b; ++e) {
        for (std::int64_t n = 0; n < heads; ++n) {
            for (std::int64_t m = 0; m < 1024; ++m) {
                for (std::int64_t k = 0; k < max_keys; ++k) {
                    bias.set({e, n, m, k}, static_cast<double>((m - k) * 37 % 17) * 0.125 +
                                               static_cast<double>(n + 2 * e));
                }
            }
        }
    }
}

// flash_attention.md 3.4, the table; contract.md 8 for mode 0.
inline bool FlashProblem::visible(std::int64_t b, std::int64_t head, std::int64_t i,
                                  std::int64_t j) const {
    using S = FlashShape;
    if (!shape.has_mask) return true;
    const std::int64_t delta = keys(b) - queries(b);
    const auto at_most = [](std::int64_t position, std::int64_t from, std::int64_t tokens) {
        return static_cast<__int128>(position) <= static_cast<__int128>(from) + tokens;
    };
    const auto shown = [&] {
        switch (shape.mask_shape) {
            case S::kRank2:
                return mask.get({i, j}) == 0.0;
            case S::kPackedSums:
                return mask.get({first_query(b) + i, first_key(b) + j}) == 0.0;
            default:
                return mask.get({shape.mask_shape == S::kShared ? 0 : b,
                                 shape.mask_shape == S::kPerHead ? head : 0, i, j}) == 0.0;
        }
    };
    const bool is_band = b == band_batch();
    switch (shape.mode) {
        case 0:
            return shown() && at_most(i, j, shape.pre) && at_most(j, i, shape.next);
        case 1:
        case 5:
            return shown();
        case 2:
            return j <= i;
        case 3:
            return j <= i + delta;
        case 4:
            return at_most(i + delta, j, shape.pre) && at_most(j, i + delta, shape.next);
        case 6:
            return j <= i + delta || j < shape.prefix[static_cast<std::size_t>(b)];
        case 7:
            return is_band ? at_most(j, i + delta, shape.next) : j <= i + delta;
        default:
            return is_band ? at_most(j, i + delta, shape.next) : j <= i;
    }
}

// flash_attention.md 3.2.
inline double FlashProblem::bias_of(std::int64_t b, std::int64_t head, std::int64_t i,
                                    std::int64_t j) const {
    using S = FlashShape;
    const std::int64_t e = shape.bias_per_batch ? b : 0;
    switch (shape.bias_shape) {
        case S::kNoBias:
            return 0.0;
        case S::kVector:
        case S::kMatrix: {
            const double slope =
                shape.bias_shape == S::kVector ? bias.get({head}) : bias.get({b, head});
            double start = 0.0;
            const bool local = shape.has_mask && shape.mode == 8 && b != 0;
            if (!shape.query_start.empty() && !shape.key_start.empty() && !local)
                start = static_cast<double>(shape.key_start[0] - shape.query_start[0]);
            const double distance = std::fabs(static_cast<double>(j - i) + start);
            return -slope * (shape.bias_type == 2 ? distance : std::sqrt(distance));
        }
        case S::kFull:
            return bias.get({e, head, i, j});
        case S::kRow:
            return bias.get({e, head, 0, j});
        case S::kRows1024: {
            const std::int64_t t = i - j - (max_keys - 1024);
            return static_cast<double>(t * 37 % 17) * 0.125 + static_cast<double>(head + 2 * e);
        }
        case S::kFlatKeys:
            return bias.get({first_key(b) * shape.heads() + head * keys(b) + j});
        default:
            return bias.get({prior_pairs(b) + (head * queries(b) + i) * keys(b) + j});
    }
}

inline bool FlashProblem::kept(std::int64_t b, std::int64_t head, std::int64_t i,
                               std::int64_t j) const {
    if (!shape.has_dropout) return true;
    const std::int64_t bit = prior_pairs(b) + (head * queries(b) + i) * keys(b) + j;
    return static_cast<int>(drop.get(drop.unravel(bit / 8))) >> bit % 8 & 1;
}

template <class Args>
void FlashProblem::fill_common(Args& a) {
    a.query = query.view();
    a.query_rope = query_rope.view();
    a.key = key.view();
    a.key_rope = key_rope.view();
    a.value = value.view();
    a.drop_mask = drop.view();
    a.atten_mask = mask.view();
    if (!shape.prefix.empty()) a.prefix = {shape.prefix.data(), shape.batch()};
    if (shape.packed()) {
        a.actual_seq_q_len = {query_ends.data(), shape.batch()};
        a.actual_seq_kv_len = {key_ends.data(), shape.batch()};
    }
    const auto array = [](const std::vector<std::int64_t>& values) {
        return attncheck_int_array{values.empty() ? nullptr : values.data(),
                                   static_cast<std::int64_t>(values.size())};
    };
    a.q_start_idx = array(shape.query_start);
    a.kv_start_idx = array(shape.key_start);
    a.scale_value = shape.scale;
    a.keep_prob = shape.keep_prob;
    a.pre_tokens = shape.pre;
    a.next_tokens = shape.next;
    a.head_num = shape.heads();
    a.input_layout = shape.layout.c_str();
    a.sparse_mode = shape.mode;
    a.pse_type = shape.bias_type;
    a.softmax_max = row_max.view();
    a.softmax_sum = row_sum.view();
}

inline attncheck_flash_attention_score_args FlashProblem::forward_args() {
    attncheck_flash_attention_score_args a{};
    fill_common(a);
    a.real_shift = bias.view();
    a.softmax_out_layout = shape.same_as_input ? "same_as_input" : "";
    a.attention_out = output.view();
    return a;
}

inline attncheck_flash_attention_score_grad_args FlashProblem::gradient_args() {
    attncheck_flash_attention_score_grad_args a{};
    fill_common(a);
    a.pse_shift = bias.view();
    a.dy = output_grad.view();
    a.softmax_in_layout = shape.same_as_input ? "same_as_input" : "";
    a.attention_in = output.view();
    a.dq = dq.view();
    a.dq_rope = dq_rope.view();
    a.dk = dk.view();
    a.dk_rope = dk_rope.view();
    a.dv = dv.view();
    return a;
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_PROBLEM_H
