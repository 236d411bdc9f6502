#include "ref/operators/attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "ref/operators/flash_attention.h"
#include "ref/operators/row_columns.h"

namespace attncheck::ref {
namespace {

/// Windows beyond any length mean the same as unlimited; clipping keeps sums inside int64.
std::int64_t reach(std::int64_t window) {
    constexpr std::int64_t kFar = std::int64_t{1} << 40;
    return window < 0 ? kFar : std::min(window, kFar);
}

template <class Value>
void require_pairs(const NeutralAttentionShape& s, const PairTensor<Value>& pairs,
                   const char* name) {
    if (!pairs.present) return;
    const auto fail = [&](const std::string& what) {
        throw std::invalid_argument("attention: " + std::string(name) + ' ' + what);
    };
    if (s.packed) fail("of packed sequences");
    if (pairs.shape.size() != 4) fail("has rank " + std::to_string(pairs.shape.size()));
    const std::int64_t full[] = {std::ssize(s.query_lengths), s.query_heads,
                                 longest_of(s.query_lengths), longest_of(s.kv_lengths)};
    std::int64_t elements = 1;
    for (std::size_t k = 0; k < 4; ++k) {
        if (pairs.shape[k] != 1 && pairs.shape[k] != full[k])
            fail("has extent " + std::to_string(pairs.shape[k]) + " for " +
                 std::to_string(full[k]));
        elements *= pairs.shape[k];
    }
    if (std::ssize(pairs.values) != elements)
        fail("has " + std::to_string(pairs.values.size()) + " elements, its shape " +
             std::to_string(elements));
}

void require_neutral_shape(const NeutralAttentionShape& s) {
    const auto sequences = s.query_lengths.size();
    if (s.kv_lengths.size() != sequences || (s.has_kv_length && s.kv_length.size() != sequences))
        throw std::invalid_argument("attention: " + std::to_string(sequences) +
                                    " query lengths, " + std::to_string(s.kv_lengths.size()) +
                                    " key lengths, " + std::to_string(s.kv_length.size()) +
                                    " in kv_length");
    if (!s.sink.empty() && std::ssize(s.sink) != s.query_heads)
        throw std::invalid_argument("attention: " + std::to_string(s.sink.size()) + " sinks for " +
                                    std::to_string(s.query_heads) + " heads");
    require_pairs(s, s.bias, "bias");
    require_pairs(s, s.mask, "mask");
}

bool is_shown(const NeutralAttentionShape& s, std::int64_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) {
    return !s.mask.present || s.mask.values[static_cast<std::size_t>(s.mask.place(b, h, i, j))] != 0;
}

/// The rows of a problem, and the column of a pair of query and key.
class NeutralColumns {
public:
    explicit NeutralColumns(const NeutralAttentionShape& shape) : shape_(shape) {
        require_neutral_shape(shape);
        rows_ = packed_queries("attention", shape);
    }
    const PackedQuery& row(std::int64_t t) const { return rows_[static_cast<std::size_t>(t)]; }
    SeenKeys range(const PackedQuery& row) const {
        return seen_keys(shape_, static_cast<std::size_t>(row.sequence), row.position);
    }

    /// Key j of the row's range, unless mask or bias hide it.
    void add(const PackedQuery& row, std::int64_t h, std::int64_t j,
             std::vector<KeyColumn>& columns) const {
        const std::int64_t b = row.sequence, i = row.position;
        if (!is_shown(shape_, b, h, i, j)) return;
        KeyColumn column{row.first_key + j, 0, true};
        if (shape_.bias.present) {
            column.place = shape_.bias.place(b, h, i, j);
            column.bias = shape_.bias.values[static_cast<std::size_t>(column.place)];
            if (column.bias == -std::numeric_limits<double>::infinity()) return;
        }
        columns.push_back(column);
    }

private:
    NeutralAttentionShape shape_;
    std::vector<PackedQuery> rows_;
};

}  // namespace

SeenKeys seen_keys(const NeutralAttentionShape& s, std::size_t b, std::int64_t i) {
    const std::int64_t skv = s.kv_lengths[b];
    const std::int64_t diagonal = i + (s.bottom_right ? skv - s.query_lengths[b] : 0);
    const std::int64_t used = s.has_kv_length ? s.kv_length[b] : skv;
    SeenKeys keys{diagonal - reach(s.window_left), diagonal + reach(s.window_right) + 1};
    keys.begin = std::clamp<std::int64_t>(keys.begin, 0, used);
    keys.end = std::clamp<std::int64_t>(keys.end, keys.begin, used);
    return keys;
}

bool sees_key(const NeutralAttentionShape& s, std::size_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) {
    const SeenKeys keys = seen_keys(s, b, i);
    if (j < keys.begin || j >= keys.end) return false;
    const auto sequence = static_cast<std::int64_t>(b);
    if (!is_shown(s, sequence, h, i, j)) return false;
    return !s.bias.present ||
           s.bias.values[static_cast<std::size_t>(s.bias.place(sequence, h, i, j))] !=
               -std::numeric_limits<double>::infinity();
}

ColumnLister attention_columns(const NeutralAttentionShape& shape) {
    return columns_of_ranges(NeutralColumns(shape));
}

ColumnLister attention_columns_of(const NeutralAttentionShape& shape,
                                  std::span<const std::int64_t> keys) {
    return columns_of_keys(NeutralColumns(shape), shape.dense(), keys);
}

ColumnLister attention_columns_of_bias(const NeutralAttentionShape& shape,
                                       std::span<const std::int64_t> elements) {
    // [b,h,i,j] of each; -1 serves all.
    std::vector<std::array<std::int64_t, 4>> indices;
    for (std::int64_t element : elements) {
        std::array<std::int64_t, 4> index{};
        for (std::size_t d = 4; d-- > 0;) {
            const std::int64_t extent = shape.bias.shape.at(d);
            index[d] = extent == 1 ? -1 : element % extent;
            element /= extent;
        }
        indices.push_back(index);
    }
    return [of = NeutralColumns(shape), indices](std::int64_t t, std::int64_t h,
                                                 std::vector<KeyColumn>& columns) {
        const PackedQuery& row = of.row(t);
        if (row.sequence < 0) return false;
        const SeenKeys keys = of.range(row);
        const std::int64_t own[] = {row.sequence, h, row.position};
        for (std::size_t e = 0; e < indices.size(); ++e) {
            const auto& index = indices[e];
            bool serves = true;
            for (std::size_t d = 0; d < 3; ++d) serves &= index[d] < 0 || index[d] == own[d];
            if (!serves) continue;
            const std::size_t first = columns.size();
            const std::int64_t begin = index[3] < 0 ? keys.begin : std::max(keys.begin, index[3]),
                               end = index[3] < 0 ? keys.end : std::min(keys.end, index[3] + 1);
            for (std::int64_t j = begin; j < end; ++j) of.add(row, h, j, columns);
            for (std::size_t c = first; c < columns.size(); ++c)
                columns[c].place = static_cast<std::int64_t>(e);
        }
        return true;
    };
}

GradStatistics given_statistics(std::span<const double> lse) {
    return {{lse.begin(), lse.end()}, std::vector<double>(lse.size(), 1), {}};
}

GradStatistics own_statistics(ExpectedAttention forward) {
    return {std::move(forward.row_max.value), std::move(forward.row_sum.value),
            std::move(forward.stored_lse.bound)};
}

}  // namespace attncheck::ref
