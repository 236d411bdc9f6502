// Oracle of the neutral operators Attention and AttentionGrad: which keys a query sees, with which
// bias; the mathematics, softcap and sinks among it, is dense_attention.h.
//
// All layouts are packed first: query [T1,N1,D], key [T2,N2,D], value [T2,N2,Dv], sequence (or
// batch) after sequence. i query position, j key position, both inside sequence b.
//
//   visible(b,h,i,j) = mask and bias > -infinity and j < kv_length_b
//                      and i + off - window_left <= j <= i + off + window_right
//   off = 0 (top left) or Skv_b - Sq_b (bottom right), of the lengths, not of kv_length
//
// A bias of -infinity hides its key: nothing of it is read. A row that sees no key and has no sink
// has O = 0, LSE = -infinity and adds nothing to a gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

/// A number for each (b, h, i, j): shape [B or 1, N1 or 1, Sq or 1, Skv or 1], row-major. Padded
/// form only.
template <class Value>
struct PairTensor {
    bool present = false;
    std::vector<std::int64_t> shape;
    std::vector<Value> values;

    /// Place of the element of (b, h, i, j), where extents of 1 serve all.
    std::int64_t place(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        const auto at = [&](std::size_t k, std::int64_t index) { return shape[k] == 1 ? 0 : index; };
        return ((at(0, b) * shape[1] + at(1, h)) * shape[2] + at(2, i)) * shape[3] + at(3, j);
    }
};

struct NeutralAttentionShape : PackedShape {
    bool packed = false;
    double scale = 1, softcap = 0;  ///< narrowed to fp32
    std::int64_t window_left = -1, window_right = -1;
    bool bottom_right = false;
    bool has_kv_length = false;
    std::vector<std::int64_t> kv_length;  ///< [B]
    PairTensor<double> bias;
    PairTensor<std::uint8_t> mask;  ///< non-zero: may be seen
    std::vector<double> sink;       ///< [N1]; empty: none

    /// The numbers above with the numbers of query, key and value: what dense_attention.h takes.
    AttentionInputs<double> inputs(std::span<const double> query, std::span<const double> key,
                                   std::span<const double> value) const {
        return {query, key, value, scale, 1, softcap, sink};
    }
};

/// Keys [begin, end) of a sequence that window and kv_length leave to query i.
struct SeenKeys {
    std::int64_t begin = 0, end = 0;
};
SeenKeys seen_keys(const NeutralAttentionShape& shape, std::size_t sequence, std::int64_t i);

/// True if key j of the sequence is visible to query i of query head h.
bool sees_key(const NeutralAttentionShape& shape, std::size_t sequence, std::int64_t h,
              std::int64_t i, std::int64_t j);

/// The columns of every row, with bias and its place; a sink is no column. Throws
/// std::invalid_argument when lengths, bias, mask, kv_length or sink do not fit the shape.
ColumnLister attention_columns(const NeutralAttentionShape& shape);

/// The same, but only columns of these keys (key row * N2 + head): at no cost for the others.
ColumnLister attention_columns_of(const NeutralAttentionShape& shape,
                                  std::span<const std::int64_t> keys);

/// The same, but only the pairs of these elements of the bias, numbered in the order given: for
/// expected_bias_grad of a few.
ColumnLister attention_columns_of_bias(const NeutralAttentionShape& shape,
                                       std::span<const std::int64_t> elements);

/// The statistics that AttentionGrad goes by, all [T1,N1].
struct GradStatistics {
    std::vector<double> row_max, row_sum;  ///< (LSE, 1) as given, or (m, l) where none is
    std::vector<double> error;             ///< AttentionGradInputs::statistics_error; empty: given
};
/// With an LSE that is given, fp32 already.
GradStatistics given_statistics(std::span<const double> lse);
/// Without one: the candidate forms its own, which may be wrong by what its forward may be.
GradStatistics own_statistics(ExpectedAttention forward);

}  // namespace attncheck::ref
