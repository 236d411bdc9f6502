// Oracle of FlashAttentionScore and FlashAttentionScoreGrad: which key columns a query sees, with
// which bias, and which of them dropout keeps; the mathematics is dense_attention.h.
//
// All layouts are packed first: query [T1,N1,D+Dr], key [T2,N2,D+Dr], value [T2,N2,Dv], sequence
// after sequence, rope parts behind the head dim (a logit over concatenated parts). i query
// position, j key position, both inside sequence b. Sources: aclnnFlashAttentionScore documents,
// flash_attention.md 2 and 3, contract.md decisions 2, 8 and 9.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

/// An attention mask as given: shape [R,C] or [1|B,1|N1,R,C], non-zero hides.
struct FlashMask {
    bool present = false;
    std::int64_t sparse_mode = 0, pre_tokens = 0, next_tokens = 0;
    std::vector<std::int64_t> shape, prefix;  ///< prefix: one per sequence, mode 6 only
    std::vector<std::uint8_t> values;         ///< read in modes 0, 1 and 5
};

/// Position bias as given: pse_type 0 and 1 a tensor that is added after (0) or before (1) the
/// scale, 2 and 3 ALiBi slopes.
struct FlashBias {
    bool present = false;
    std::int64_t type = 1;
    std::vector<std::int64_t> shape;
    std::vector<double> values;
    std::int64_t query_start = 0, key_start = 0;  ///< 0 unless both are given
};

struct FlashDropout {
    bool present = false;
    double keep_prob = 1;             ///< narrowed to fp32
    std::vector<std::uint8_t> bytes;  ///< bit e & 7 of byte e >> 3: 1 keeps
};

struct FlashAttentionShape : PackedShape {
    std::int64_t rope_dim = 0;
    bool packed = false;  ///< TND: sequences of their own lengths
    double scale = 1;     ///< narrowed to fp32
    FlashMask mask;
    FlashBias bias;
    FlashDropout dropout;

    AttentionShape dense() const {
        AttentionShape shape = PackedShape::dense();
        shape.head_dim += rope_dim;
        return shape;
    }
};

/// Keys [begin, end) that the predicate of a sparse mode leaves to query i, before mask contents
/// and prefix.
///
/// 0, 1, 5 the mask decides; 0 also hides what is outside its band
///   mode 0 (band, top left)   mode 2 (j <= i)   mode 3 (bottom right)  mode 4 (band, bottom right)
///     x x . . .                 x . . . .         x x x . .              . x x x .      delta =
///     Skv - Sq = 2 x x x . .                 x x . . .         x x x x .              . . x x x .
///     x x x .                 x x x . .         x x x x x              . . . x x
///   mode 6: mode 3 or j < prefix[b]
///   mode 7: mode 3, but the last sequence with queries j <= i + delta + next
///   mode 8: mode 2, but the first sequence with queries j <= i + delta + next
struct KeyRange {
    std::int64_t begin = 0, end = 0;
};
KeyRange visible_range(const FlashAttentionShape& shape, std::size_t sequence, std::int64_t i);

/// Where the sequences of a problem begin: found once, asked for every pair.
struct SequenceStarts {
    explicit SequenceStarts(const FlashAttentionShape& shape);

    std::vector<std::int64_t> query, key, pair;  ///< first row; first of the Sq Skv pairs before, of one head
    std::int64_t keys = 0;                       ///< of all sequences
    bool mask_by_place = false;  ///< a mask [sum Sq, sum Skv], in which a sequence has its own place
};

/// True if key j of the sequence is visible to query i of query head n.
bool is_visible(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t sequence,
                std::int64_t n, std::int64_t i, std::int64_t j);

/// The bias of the scaled logit: for pse_type 1, scale times the given bias.
double bias_at(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t sequence,
               std::int64_t n, std::int64_t i, std::int64_t j);

/// The columns of every row. Throws std::invalid_argument when mask, bias or drop mask do not fit.
ColumnLister flash_columns(const FlashAttentionShape& shape);

/// The same, but only columns of these keys (key row * N2 + head): at no cost for the others.
ColumnLister flash_columns_of(const FlashAttentionShape& shape, std::span<const std::int64_t> keys);

/// Order of the statistics in TND: number p (of 8 lanes) of the tensor [T1,N1,8] belongs to packed
/// row t and head n. "same_as_input": p = t * N1 + n. Otherwise, sequence by sequence, p = first
/// row * N1 + n * Sq + i. Returns the packed number t * N1 + n of each p; rows beyond the last
/// sequence stay where they are.
std::vector<std::int64_t> statistics_order(const FlashAttentionShape& shape, bool same_as_input);

/// Number of the batch or sequence's first query row and key row.
std::vector<std::int64_t> first_rows(std::span<const std::int64_t> lengths);

/// Longest of the lengths, 0 for none.
std::int64_t longest_of(std::span<const std::int64_t> lengths);

}  // namespace attncheck::ref
