#include "ref/operators/nsa_compress_attention.h"

#include <stdexcept>
#include <string>

#include "ref/operators/flash_attention.h"

namespace attncheck::ref {
namespace {

constexpr const char* kProblem = "compress attention";

void require_mask(const char* name, std::size_t size, std::int64_t rows, std::int64_t columns) {
    if (size != 0 && static_cast<std::int64_t>(size) != rows * columns)
        throw std::invalid_argument(std::string(kProblem) + ": " + name + " has " +
                                    std::to_string(size) + " elements, the longest sequences are " +
                                    std::to_string(rows) + " by " + std::to_string(columns));
}

}  // namespace

std::int64_t CompressAttentionShape::longest_query() const { return longest_of(query_lengths); }
std::int64_t CompressAttentionShape::longest_cmp() const { return longest_of(kv_lengths); }

void require_compress_attention(const CompressAttentionShape& shape, const CompressMasks& masks) {
    const std::int64_t l = shape.compress_block, d = shape.compress_stride;
    if (d < 1 || l < d || shape.select_block < l || shape.select_block % d != 0 ||
        shape.select_count < 1)
        throw std::invalid_argument(std::string(kProblem) + ": compress_block " +
                                    std::to_string(l) + ", compress_stride " + std::to_string(d) +
                                    ", select_block " + std::to_string(shape.select_block) +
                                    ", select_count " + std::to_string(shape.select_count));
    const std::int64_t rows = shape.longest_query();
    require_mask("atten_mask", masks.atten.size(), rows, shape.longest_cmp());
    require_mask("topk_mask", masks.topk.size(), rows, shape.most_select_blocks());
}

std::vector<PackedQuery> compress_queries(const CompressAttentionShape& shape) {
    return packed_queries(kProblem, shape);
}

ColumnLister compress_columns(const CompressAttentionShape& shape, const CompressMasks& masks) {
    require_compress_attention(shape, masks);
    return
        [mask = masks.atten, mask_columns = shape.longest_cmp(), queries = compress_queries(shape)](
            std::int64_t t, std::int64_t, std::vector<KeyColumn>& columns) {
            const PackedQuery& query = queries[static_cast<std::size_t>(t)];
            if (query.sequence < 0) return false;
            const std::int64_t row = query.position * mask_columns;
            for (std::int64_t i = 0; i < query.kv_length; ++i)
                if (mask.empty() || mask[static_cast<std::size_t>(row + i)] == 0)
                    columns.push_back({query.first_key + i, 0, true});
            return true;
        };
}

std::vector<std::int64_t> compress_statistics_order(const CompressAttentionShape& shape) {
    FlashAttentionShape packed;  // the arrangement is that of FlashAttention in TND
    packed.query_lengths = shape.query_lengths;
    packed.total_queries = shape.total_queries;
    packed.query_heads = shape.query_heads;
    return statistics_order(packed, false);
}

}  // namespace attncheck::ref
