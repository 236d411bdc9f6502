#include "ref/operators/packed_queries.h"

#include <stdexcept>

namespace attncheck::ref {
namespace {

void require_sum(const std::string& problem, const char* name,
                 const std::vector<std::int64_t>& lengths, const char* total_name,
                 std::int64_t total) {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths) sum += length;
    if (sum > total)
        throw std::invalid_argument(problem + ": " + name + " sum to " + std::to_string(sum) +
                                    ", " + total_name + " is " + std::to_string(total));
}

}  // namespace

std::vector<PackedQuery> packed_queries(const std::string& problem, const PackedShape& shape) {
    const std::vector<std::int64_t>&query_lengths = shape.query_lengths,
          &kv_lengths = shape.kv_lengths;
    if (query_lengths.size() != kv_lengths.size())
        throw std::invalid_argument(problem + ": " + std::to_string(query_lengths.size()) +
                                    " query_lengths, " + std::to_string(kv_lengths.size()) +
                                    " kv_lengths");
    require_sum(problem, "query_lengths", query_lengths, "total_queries", shape.total_queries);
    require_sum(problem, "kv_lengths", kv_lengths, "total_keys", shape.total_keys);
    std::vector<PackedQuery> queries(static_cast<std::size_t>(shape.total_queries));
    std::size_t row = 0;
    std::int64_t key = 0;
    for (std::size_t b = 0; b < query_lengths.size(); ++b) {
        for (std::int64_t s = 0; s < query_lengths[b]; ++s)
            queries[row++] = {static_cast<std::int64_t>(b), s, key, kv_lengths[b]};
        key += kv_lengths[b];
    }
    return queries;
}

}  // namespace attncheck::ref
