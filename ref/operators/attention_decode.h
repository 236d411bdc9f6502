// Oracle of AttentionDecode: a few queries per sequence over a paged cache. An index map onto
// dense_attention.h, whose key rows are the rows of the cache.
//
//   key of position j of sequence b:  row block_table[b, j / page_size] * page_size + j % page_size
//   query i of Sq stands at position p = kv_length_b - Sq + i and sees
//   max(0, p - window_left) <= j <= p
//
// Kwon et al. 2023, PagedAttention, section 4.1. A query before position 0 sees nothing. Pages may
// be shared, and no entry of the table behind the last page of a sequence is read.
//
// Legend: B sequences, Sq queries of each, N1 and N2 query and key/value heads, D, Dv.
#pragma once

#include <cstdint>
#include <vector>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

struct DecodeShape {
    std::int64_t queries = 1;                ///< Sq
    std::vector<std::int64_t> kv_lengths;    ///< [B]
    std::int64_t query_heads = 1, kv_heads = 1;
    std::int64_t head_dim = 1, value_dim = 1;
    std::int64_t pages = 0, page_size = 1;   ///< of the cache
    std::int64_t table_columns = 0;          ///< max_pages
    std::int64_t window_left = -1;           ///< -1: unlimited

    std::int64_t batches() const { return static_cast<std::int64_t>(kv_lengths.size()); }
    /// Pages of a sequence that are read.
    std::int64_t pages_of(std::size_t b) const {
        return (kv_lengths[b] + page_size - 1) / page_size;
    }
    /// Query rows are b * Sq + i, key rows page * page_size + slot.
    AttentionShape dense() const {
        return {batches() * queries, pages * page_size, query_heads, kv_heads, head_dim, value_dim};
    }
};

/// Positions [begin, end) that query i of a sequence sees.
struct SeenPositions {
    std::int64_t begin = 0, end = 0;
};
SeenPositions seen_positions(const DecodeShape& shape, std::size_t sequence, std::int64_t i);

/// The columns of every row, in the order of positions. `block_table` is [B, table_columns], copied.
/// Throws std::invalid_argument when it has another size, when a sequence has more positions than
/// its row of the table, or when an entry that is read is no page of the cache.
ColumnLister decode_columns(const DecodeShape& shape, std::vector<std::int64_t> block_table);

}  // namespace attncheck::ref
