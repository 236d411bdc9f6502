#include "ref/operators/attention_decode.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace attncheck::ref {
namespace {

void require_readable(const DecodeShape& s, const std::vector<std::int64_t>& table) {
    if (static_cast<std::int64_t>(table.size()) != s.batches() * s.table_columns)
        throw std::invalid_argument("block_table has " + std::to_string(table.size()) +
                                    " entries, not B * max_pages");
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b) {
        if (s.pages_of(b) > s.table_columns)
            throw std::invalid_argument("kv_length " + std::to_string(s.kv_lengths[b]) +
                                        " needs more than max_pages pages");
        const auto row = table.begin() + static_cast<std::int64_t>(b) * s.table_columns;
        for (auto entry = row; entry != row + s.pages_of(b); ++entry)
            if (*entry < 0 || *entry >= s.pages)
                throw std::invalid_argument("block_table names page " + std::to_string(*entry) +
                                            " of " + std::to_string(s.pages));
    }
}

}  // namespace

SeenPositions seen_positions(const DecodeShape& shape, std::size_t sequence, std::int64_t i) {
    const std::int64_t position = shape.kv_lengths[sequence] - shape.queries + i;
    if (position < 0) return {};
    const bool is_limited = shape.window_left >= 0 && shape.window_left < position;
    return {is_limited ? position - shape.window_left : 0, position + 1};
}

ColumnLister decode_columns(const DecodeShape& shape, std::vector<std::int64_t> block_table) {
    require_readable(shape, block_table);
    return [shape, table = std::move(block_table)](std::int64_t row, std::int64_t,
                                                   std::vector<KeyColumn>& columns) {
        const auto b = static_cast<std::size_t>(row / shape.queries);
        const SeenPositions seen = seen_positions(shape, b, row % shape.queries);
        const std::int64_t first = static_cast<std::int64_t>(b) * shape.table_columns;
        for (std::int64_t j = seen.begin; j < seen.end; ++j) {
            const std::int64_t page =
                table[static_cast<std::size_t>(first + j / shape.page_size)];
            columns.push_back({page * shape.page_size + j % shape.page_size});
        }
        return true;
    };
}

}  // namespace attncheck::ref
