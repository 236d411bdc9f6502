// Oracle of NsaCompressAttention, the attention part: every query over the compressed keys of its
// sequence; the mathematics is dense_attention.h. Scores and selection are built on it.
//
//   query position s of sequence b, compressed key i < Cmp_b, key row  first key of b + i
//   hidden    atten_mask[s, i] != 0, both counted from the start of their sequence; without a mask
//             every key of the sequence is visible, whatever the sparse mode
//
// A row all of whose keys are hidden has output 0 and the statistics of an empty row; there is no
// mean over hidden values (contract.md, decision 2). Rows behind the last sequence are 0.
//
// Legend: l compress_block_size, d compress_stride, l' select_block_size, K select_block_count;
//         Cmp_b compressed keys and Sel_b selection blocks of sequence b.
// Sources: aclnnNsaCompressAttention, contract.md decisions 2, 4 and 7; nsa.md 6.2, 6.3, 6.5.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

/// Keys and their lengths are compressed ones: kv_lengths are Cmp_b, total_keys is C.
struct CompressAttentionShape : PackedShape {
    std::int64_t compress_block = 32, compress_stride = 16;
    std::int64_t select_block = 64, select_count = 1;

    /// l' / d: compressed keys per selection block.
    std::int64_t keys_per_select() const { return select_block / compress_stride; }
    /// floor(l / d): strides per compressed key.
    std::int64_t strides_per_key() const { return compress_block / compress_stride; }
    /// Sel_b = ceil(Cmp_b / (l' / d)).
    std::int64_t select_blocks(std::int64_t cmp_length) const {
        return (cmp_length + keys_per_select() - 1) / keys_per_select();
    }
    std::int64_t longest_query() const;
    std::int64_t longest_cmp() const;  ///< row length of atten_mask
    /// Row length of topk_mask.
    std::int64_t most_select_blocks() const { return select_blocks(longest_cmp()); }
};

/// Masks as given, row-major, one row per query position; empty: absent. Non-zero hides a key or
/// forces a block. The same masks serve all sequences and heads.
struct CompressMasks {
    std::span<const std::uint8_t> atten;  ///< [max S_q, max Cmp]
    std::span<const std::uint8_t> topk;   ///< [max S_q, max Sel]
};

/// Throws std::invalid_argument when lengths, blocks or masks do not fit.
void require_compress_attention(const CompressAttentionShape& shape, const CompressMasks& masks);

/// kv_length of a query counts compressed keys.
std::vector<PackedQuery> compress_queries(const CompressAttentionShape& shape);

/// The columns of every row, in ascending order of the keys. The mask must outlive the lister.
ColumnLister compress_columns(const CompressAttentionShape& shape, const CompressMasks& masks = {});

/// Physical order of the statistics: element p of [T1,N1] (of 8 lanes each) holds the statistic of
/// the returned number t * N1 + n. Per sequence they lie as [N1, S_q], one sequence behind the
/// other, which is [T1,N1] only where S_q or N1 is 1 (nsa.md 6.5). Rows behind the last sequence
/// stay where they are.
std::vector<std::int64_t> compress_statistics_order(const CompressAttentionShape& shape);

}  // namespace attncheck::ref
