// Query rows of sequences packed one behind the other (TND): which sequence a row belongs to, where
// it stands in it, and where the keys of that sequence begin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::ref {

/// Sequence -1: the row lies behind the last one.
struct PackedQuery {
    std::int64_t sequence = -1, position = 0, first_key = 0, kv_length = 0;
};

/// One entry per query row. `problem` begins the messages. Throws std::invalid_argument when the
/// two lists differ in length or their sums exceed the rows there are.
std::vector<PackedQuery> packed_queries(const std::string& problem,
                                        const std::vector<std::int64_t>& query_lengths,
                                        const std::vector<std::int64_t>& kv_lengths,
                                        std::int64_t total_queries, std::int64_t total_keys);

}  // namespace attncheck::ref
