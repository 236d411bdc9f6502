// Listers of columns where a row sees a range of the keys of its sequence, less what hides some of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ref/attention/dense_attention.h"
#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

/// `Columns` has row(t), a PackedQuery; range(row), the keys [begin, end) of its sequence; and
/// add(row, head, key, columns), which adds the column of one of them unless it is hidden.
template <class Columns>
ColumnLister columns_of_ranges(Columns of) {
    return [of = std::move(of)](std::int64_t t, std::int64_t n, std::vector<KeyColumn>& columns) {
        const PackedQuery& row = of.row(t);
        if (row.sequence < 0) return false;
        const auto range = of.range(row);
        for (std::int64_t j = range.begin; j < range.end; ++j) of.add(row, n, j, columns);
        return true;
    };
}

/// The same, but only columns of these keys (key row * N2 + head): at no cost for the others.
template <class Columns>
ColumnLister columns_of_keys(Columns of, const AttentionShape& shape,
                             std::span<const std::int64_t> keys) {
    std::vector<std::vector<std::int64_t>> by_head(static_cast<std::size_t>(shape.kv_heads));
    for (const std::int64_t key : keys)
        by_head[static_cast<std::size_t>(key % shape.kv_heads)].push_back(key / shape.kv_heads);
    for (auto& rows : by_head) std::ranges::sort(rows);
    return [of = std::move(of), by_head, group = shape.group()](
               std::int64_t t, std::int64_t n, std::vector<KeyColumn>& columns) {
        const PackedQuery& row = of.row(t);
        if (row.sequence < 0) return false;
        const auto& rows = by_head[static_cast<std::size_t>(n / group)];
        const auto range = of.range(row);
        auto key = std::ranges::lower_bound(rows, row.first_key + range.begin);
        for (; key != rows.end() && *key < row.first_key + range.end; ++key)
            of.add(row, n, *key - row.first_key, columns);
        return true;
    };
}

}  // namespace attncheck::ref
