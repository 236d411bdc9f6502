// Sequences packed one behind the other (TND): which one a query row belongs to, where it stands in
// it, and where the keys of that sequence begin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

/// What operators over packed sequences have in common.
struct PackedShape {
    std::vector<std::int64_t> query_lengths, kv_lengths;  ///< per sequence or batch, each >= 0
    std::int64_t total_queries = 0, total_keys = 0;       ///< T1, T2: rows beyond belong to nothing
    std::int64_t query_heads = 1, kv_heads = 1;           ///< N1, N2
    std::int64_t head_dim = 1, value_dim = 1;             ///< D, Dv

    std::int64_t group() const { return query_heads / kv_heads; }
    AttentionShape dense() const {
        return {total_queries, total_keys, query_heads, kv_heads, head_dim, value_dim};
    }
};

/// Sequence -1: the row lies behind the last one.
struct PackedQuery {
    std::int64_t sequence = -1, position = 0, first_key = 0, kv_length = 0;
};

/// One entry per query row. `problem` begins the messages. Throws std::invalid_argument when the
/// two lists differ in length or their sums exceed the rows there are.
std::vector<PackedQuery> packed_queries(const std::string& problem, const PackedShape& shape);

}  // namespace attncheck::ref
