#include "ref/operators/nsa_selected_attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ref/attention/attention_roundoff.h"

namespace attncheck::ref {
namespace {

/// The mask covers every position of every sequence.
void require_mask(const SelectedAttentionShape& shape, std::size_t size) {
    std::int64_t rows = 0, columns = 0;
    for (const std::int64_t length : shape.query_lengths) rows = std::max(rows, length);
    for (const std::int64_t length : shape.kv_lengths) columns = std::max(columns, length);
    if (shape.mask_columns < columns || static_cast<std::int64_t>(size) < rows * shape.mask_columns)
        throw std::invalid_argument("selected attention: mask has " + std::to_string(size) +
                                    " elements in rows of " + std::to_string(shape.mask_columns) +
                                    ", the longest sequences are " + std::to_string(rows) +
                                    " and " + std::to_string(columns));
}

}  // namespace

std::vector<PackedQuery> selected_queries(const SelectedAttentionShape& shape) {
    return packed_queries("selected attention", shape);
}

ColumnLister selected_columns(const SelectedAttentionShape& shape,
                              std::span<const std::int64_t> topk,
                              std::span<const std::uint8_t> mask) {
    require_elements("topk", topk.size(), shape.total_queries * shape.kv_heads * shape.count);
    if (shape.mask == SelectedMask::contents) require_mask(shape, mask.size());
    return [shape, topk, mask, queries = selected_queries(shape)](std::int64_t t, std::int64_t head,
                                                                  std::vector<KeyColumn>& columns) {
        const PackedQuery& query = queries[static_cast<std::size_t>(t)];
        if (query.sequence < 0) return false;
        if (query.kv_length == 0) return true;
        const std::int64_t kv_head = head / shape.group();
        const auto list =
            topk.subspan(static_cast<std::size_t>((t * shape.kv_heads + kv_head) * shape.count),
                         static_cast<std::size_t>(shape.count));
        const auto visible = [&](std::int64_t position) {
            switch (shape.mask) {
                case SelectedMask::none:
                    return true;
                case SelectedMask::causal:
                    return position <= query.position;
                case SelectedMask::contents:
                    return mask[static_cast<std::size_t>(query.position * shape.mask_columns +
                                                         position)] == 0;
            }
            return false;
        };
        for (const std::int64_t index : list)
            for (std::int64_t r = 0; r < shape.block; ++r) {
                const std::int64_t position = index * shape.block + r;
                if (position < 0 || position >= query.kv_length)
                    throw std::invalid_argument("selected attention: block " +
                                                std::to_string(index) + " of a sequence of " +
                                                std::to_string(query.kv_length) + " keys");
                if (visible(position)) columns.push_back({query.first_key + position, 0, true});
            }
        return true;
    };
}

}  // namespace attncheck::ref
