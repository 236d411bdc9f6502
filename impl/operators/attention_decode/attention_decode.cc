// Legend: B batch, Sq queries of a sequence, Hq and Hkv query and key/value heads, G = Hq / Hkv,
// D head dim, Dv value dim.
//
// One unit of work is one query position with the G heads that read one key/value head. They see
// the same range of positions, so every key that is copied out of its page is seen by all rows of
// the unit: nothing is masked, and what is hidden is never read. Tiles begin at the first visible
// position; online softmax over tiles (Milakov and Gimelshein 2018, algorithm 3).
#include "impl/operators/attention_decode/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "impl/arguments/strided_rows.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

using Int = std::int64_t;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Keys of a tile: K and V of it at D = Dv = 128 take 64 KiB of floats, half of a small L2 cache.
constexpr Int kTileKeys = 64;

/// Offset of element (i, j, k, 0); an extent of 1 may carry any stride, so only indices that exist
/// are multiplied.
Int offset_of(const attncheck_tensor& t, Int i, Int j, Int k) {
    return i * t.strides[0] + j * t.strides[1] + k * t.strides[2];
}

/// Reads `count` elements, `stride` apart, as fp32, and puts them `to_stride` apart.
void widen_elements(const attncheck_tensor& t, Int offset, Int count, float* to, Int to_stride) {
    const Int stride = t.strides[3];
    if (t.dtype == ATTNCHECK_FLOAT32) {
        const auto* from = static_cast<const float*>(t.data) + offset;
        for (Int c = 0; c < count; ++c) to[c * to_stride] = from[c * stride];
        return;
    }
    const auto* from = static_cast<const std::uint16_t*>(t.data) + offset;
    const HalfFormat format = half_format(t);
    for (Int c = 0; c < count; ++c) to[c * to_stride] = widen(format, from[c * stride]);
}

/// out = sums / divisor, rounded to the type of the tensor.
void store_quotient(const attncheck_tensor& t, Int offset, const float* sums, float divisor,
                    Int count) {
    const Int stride = t.strides[3];
    if (t.dtype == ATTNCHECK_FLOAT32) {
        auto* to = static_cast<float*>(t.data) + offset;
        for (Int c = 0; c < count; ++c) to[c * stride] = sums[c] / divisor;
        return;
    }
    auto* to = static_cast<std::uint16_t*>(t.data) + offset;
    const HalfFormat format = half_format(t);
    for (Int c = 0; c < count; ++c) to[c * stride] = narrow(format, sums[c] / divisor);
}

/// Positions [begin, end) that a query sees.
struct Positions {
    Int begin, end;
};

/// The queries are the last Sq positions; those before position 0 see nothing.
Positions visible_to(const attncheck_attention_decode_args& a, Int b, Int i) {
    const Int last = a.kv_length.values[b] - a.query.shape[1] + i;
    const bool is_limited = a.window_left >= 0 && a.window_left < last;
    return {is_limited ? last - a.window_left : 0, std::max<Int>(last + 1, 0)};
}

/// Kernels take columns in multiples of a panel.
Int padded(Int count) { return (count + kPanelCols - 1) / kPanelCols * kPanelCols; }

/// Scratch of one unit; all rows are packed, those of values and sums padded with zeros.
struct Tile {
    Tile(Int rows, Int dim, Int value_dim)
        : query(rows * dim),
          keys(dim * kTileKeys),
          values(kTileKeys * value_dim),
          logits(rows * kTileKeys),
          sums(rows * value_dim),
          row_max(rows),
          row_sum(rows),
          rescale(rows) {}

    AlignedBuffer<float> query;           ///< [G,D]
    AlignedBuffer<float> keys;            ///< [D,kTileKeys]
    AlignedBuffer<float> values;          ///< [kTileKeys,Dv]
    AlignedBuffer<float> logits, sums;    ///< [G,kTileKeys], [G,Dv]
    AlignedBuffer<float> row_max, row_sum, rescale;
};

class Unit {
public:
    Unit(const attncheck_attention_decode_args& a, const AttentionKernels& kernels, Int number)
        : a_(a),
          kernels_(kernels),
          dim_(a.query.shape[3]),
          value_dim_(a.value_cache.shape[3]),
          padded_dim_(padded(value_dim_)),
          group_(a.query.shape[2] / a.key_cache.shape[2]),
          kv_head_(number % a.key_cache.shape[2]),
          i_(number / a.key_cache.shape[2] % a.query.shape[1]),
          b_(number / a.key_cache.shape[2] / a.query.shape[1]),
          tile_(group_, dim_, padded_dim_) {}

    void run() {
        begin_rows();
        const Positions seen = visible_to(a_, b_, i_);
        for (Int first = seen.begin; first < seen.end; first += kTileKeys)
            add_tile(first, std::min(kTileKeys, seen.end - first));
        finish_rows();
    }

private:
    /// A sink is a logit without a value: the first term of the row sum.
    void begin_rows() {
        for (Int g = 0; g < group_; ++g) {
            const Int head = kv_head_ * group_ + g;
            widen_elements(a_.query, offset_of(a_.query, b_, i_, head), dim_,
                           tile_.query.data() + g * dim_, 1);
            float sink = -kInfinity;
            if (a_.sink.data != nullptr)
                sink = static_cast<const float*>(a_.sink.data)[head * a_.sink.strides[0]];
            tile_.row_max.data()[g] = sink;
            tile_.row_sum.data()[g] = sink == -kInfinity ? 0.0f : 1.0f;
        }
        std::fill_n(tile_.sums.data(), group_ * padded_dim_, 0.0f);
        std::fill_n(tile_.values.data(), kTileKeys * padded_dim_, 0.0f);
        std::fill_n(tile_.keys.data(), dim_ * kTileKeys, 0.0f);
    }

    /// Keys as columns, values as rows.
    void copy_tile(Int first, Int count) {
        const Int page_size = a_.key_cache.shape[1];
        const auto* table = static_cast<const std::int32_t*>(a_.block_table.data) +
                            b_ * a_.block_table.strides[0];
        for (Int j = 0; j < count; ++j) {
            const Int position = first + j, slot = position % page_size;
            const Int page = table[position / page_size * a_.block_table.strides[1]];
            widen_elements(a_.key_cache, offset_of(a_.key_cache, page, slot, kv_head_), dim_,
                           tile_.keys.data() + j, kTileKeys);
            widen_elements(a_.value_cache, offset_of(a_.value_cache, page, slot, kv_head_),
                           value_dim_, tile_.values.data() + j * padded_dim_, 1);
        }
    }

    void add_tile(Int first, Int count) {
        copy_tile(first, count);
        const Int cols = padded(count);
        float* const logits = tile_.logits.data();
        kernels_.scaled_product({tile_.query.data(), dim_, group_, tile_.keys.data(), kTileKeys,
                                 dim_, cols, static_cast<float>(a_.scale), logits, kTileKeys});
        const float cap = static_cast<float>(a_.softcap);
        for (Int g = 0; g < group_; ++g) {
            float* const row = logits + g * kTileKeys;
            if (cap > 0)
                for (Int j = 0; j < count; ++j) row[j] = cap * std::tanh(row[j] / cap);
            std::fill(row + count, row + cols, -kInfinity);
        }
        kernels_.softmax_tile({logits, kTileKeys, group_, cols, 1.0f, tile_.row_max.data(),
                               tile_.row_sum.data(), tile_.rescale.data()});
        for (Int g = 0; g < group_; ++g)
            kernels_.scale_row(tile_.sums.data() + g * padded_dim_, tile_.rescale.data()[g],
                               padded_dim_);
        kernels_.float_product({logits, kTileKeys, group_, tile_.values.data(), padded_dim_, count,
                                padded_dim_, true, tile_.sums.data(), padded_dim_});
    }

    void finish_rows() {
        for (Int g = 0; g < group_; ++g) {
            const Int head = kv_head_ * group_ + g;
            const float max = tile_.row_max.data()[g], sum = tile_.row_sum.data()[g];
            const bool is_empty = sum == 0 && max == -kInfinity;
            store_quotient(a_.out, offset_of(a_.out, b_, i_, head),
                           tile_.sums.data() + g * padded_dim_, is_empty ? 1.0f : sum, value_dim_);
            if (a_.lse.data != nullptr)
                static_cast<float*>(a_.lse.data)[offset_of(a_.lse, b_, head, i_)] =
                    is_empty ? -kInfinity : max + std::log(sum);
        }
    }

    const attncheck_attention_decode_args& a_;
    const AttentionKernels& kernels_;
    Int dim_, value_dim_, padded_dim_, group_, kv_head_, i_, b_;
    Tile tile_;
};

}  // namespace

void attention_decode(const attncheck_attention_decode_args& args,
                      const AttentionKernels& kernels) {
    const Int units = args.query.shape[0] * args.query.shape[1] * args.key_cache.shape[2];
    parallel_for(units, [&](Int number) { Unit(args, kernels, number).run(); });
}

}  // namespace attncheck::impl
