#include "ref/operators/flash_attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "ref/operators/row_columns.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kCompressedRows = 1024;

/// Tokens beyond any length mean the same as unlimited; clipping keeps sums inside int64.
std::int64_t clip_tokens(std::int64_t tokens) {
    constexpr std::int64_t kFar = std::int64_t{1} << 40;
    return std::clamp(tokens, -kFar, kFar);
}

/// The sequence that modes 7 (last) and 8 (first) treat as a band: the one with queries.
std::size_t band_sequence(const FlashAttentionShape& shape) {
    const auto has_queries = [](std::int64_t length) { return length != 0; };
    const auto& lengths = shape.query_lengths;
    if (shape.mask.sparse_mode == 8)
        return static_cast<std::size_t>(std::find_if(lengths.begin(), lengths.end(), has_queries) -
                                        lengths.begin());
    const auto last = std::find_if(lengths.rbegin(), lengths.rend(), has_queries);
    return last == lengths.rend() ? lengths.size()
                                  : static_cast<std::size_t>(lengths.rend() - last) - 1;
}

/// Offset of the mask element of (b, n, i, j). Masks of packed sequences are read from the top
/// left, or, as [sum Sq, sum Skv], at the place of the sequence.
std::size_t mask_offset(const FlashAttentionShape& shape, const SequenceStarts& starts,
                        std::size_t b, std::int64_t n, std::int64_t i, std::int64_t j) {
    const auto& extents = shape.mask.shape;
    if (extents.size() == 2) {
        if (starts.mask_by_place) {
            i += starts.query[b];
            j += starts.key[b];
        }
        return static_cast<std::size_t>(i * extents[1] + j);
    }
    const std::int64_t batch = extents[0] == 1 ? 0 : static_cast<std::int64_t>(b);
    const std::int64_t head = extents[1] == 1 ? 0 : n;
    return static_cast<std::size_t>(((batch * extents[1] + head) * extents[2] + i) * extents[3] +
                                    j);
}

/// Whether what the mask holds decides, not its mode alone.
bool has_contents(const FlashAttentionShape& shape) {
    const std::int64_t mode = shape.mask.sparse_mode;
    return shape.mask.present && (mode == 0 || mode == 1 || mode == 5);
}

bool is_hidden(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t b,
               std::int64_t n, std::int64_t i, std::int64_t j) {
    return shape.mask.values.at(mask_offset(shape, starts, b, n, i, j)) != 0;
}

/// An external bias, forms in the order in which they are told apart.
double external_bias(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t b,
                     std::int64_t n, std::int64_t i, std::int64_t j) {
    const FlashBias& bias = shape.bias;
    const std::int64_t sq = shape.query_lengths[b], skv = shape.kv_lengths[b],
                       heads = shape.query_heads;
    if (bias.shape.size() == 1) {
        if (bias.shape[0] == heads * starts.keys)
            return bias.values.at(static_cast<std::size_t>(starts.key[b] * heads + n * skv + j));
        return bias.values.at(
            static_cast<std::size_t>(heads * starts.pair[b] + (n * sq + i) * skv + j));
    }
    const std::int64_t rows = bias.shape[2], columns = bias.shape[3];
    const std::int64_t slice =
        ((bias.shape[0] == 1 ? 0 : static_cast<std::int64_t>(b)) * heads + n) * rows;
    const auto at = [&](std::int64_t row, std::int64_t column) {
        return bias.values.at(static_cast<std::size_t>((slice + row) * columns + column));
    };
    if (rows == 1) return at(0, j);
    if (rows == sq && columns == skv) return at(i, j);
    // The last 1024 rows of a bias that depends on i - j alone.
    const std::int64_t t = (i - j) - (columns - kCompressedRows);
    return t >= 0 ? at(t, 0) : at(0, -t);
}

double alibi(const FlashAttentionShape& shape, std::size_t b, std::int64_t n, std::int64_t i,
             std::int64_t j) {
    const FlashBias& bias = shape.bias;
    const bool shifted = !(shape.mask.present && shape.mask.sparse_mode == 8 && b != 0);
    const double distance = std::fabs(static_cast<double>(j + (shifted ? bias.key_start : 0)) -
                                      static_cast<double>(i + (shifted ? bias.query_start : 0)));
    const std::size_t row =
        bias.shape.size() == 2 ? b * static_cast<std::size_t>(shape.query_heads) : 0;
    const double slope = bias.values.at(row + static_cast<std::size_t>(n));
    return -slope * (bias.type == 3 ? std::sqrt(distance) : distance);
}

}  // namespace

std::vector<std::int64_t> first_rows(std::span<const std::int64_t> lengths) {
    std::vector<std::int64_t> first;
    std::int64_t row = 0;
    for (const auto length : lengths) {
        first.push_back(row);
        row += length;
    }
    return first;
}

std::int64_t longest_of(std::span<const std::int64_t> lengths) {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

KeyRange visible_range(const FlashAttentionShape& shape, std::size_t b, std::int64_t i) {
    const std::int64_t sq = shape.query_lengths[b], skv = shape.kv_lengths[b], delta = skv - sq;
    const FlashMask& mask = shape.mask;
    const std::int64_t pre = clip_tokens(mask.pre_tokens), next = clip_tokens(mask.next_tokens);
    KeyRange range{0, skv};
    const bool band_batch = mask.present && (mask.sparse_mode == 7 || mask.sparse_mode == 8) &&
                            b == band_sequence(shape);
    if (mask.present) switch (mask.sparse_mode) {
            case 0:
                range = {i - pre, i + next + 1};
                break;
            case 2:
                range.end = i + 1;
                break;
            case 3:
            case 6:
                range.end = i + delta + 1;
                break;
            case 4:
                range = {i + delta - pre, i + delta + next + 1};
                break;
            case 7:
                range.end = i + delta + 1 + (band_batch ? next : 0);
                break;
            case 8:
                range.end = band_batch ? i + delta + next + 1 : i + 1;
                break;
            default:
                break;
        }
    if (mask.present && mask.sparse_mode == 6) range.end = std::max(range.end, mask.prefix.at(b));
    range.begin = std::clamp<std::int64_t>(range.begin, 0, skv);
    range.end = std::clamp<std::int64_t>(range.end, range.begin, skv);
    return range;
}

SequenceStarts::SequenceStarts(const FlashAttentionShape& shape)
    : query(first_rows(shape.query_lengths)), key(first_rows(shape.kv_lengths)) {
    std::int64_t pairs = 0;
    for (std::size_t b = 0; b < shape.query_lengths.size(); ++b) {
        pair.push_back(pairs);
        pairs += shape.query_lengths[b] * shape.kv_lengths[b];
        keys += shape.kv_lengths[b];
    }
    const auto& extents = shape.mask.shape;
    mask_by_place = shape.packed && extents.size() == 2 &&
                    (extents[0] != longest_of(shape.query_lengths) ||
                     extents[1] != longest_of(shape.kv_lengths));
}

bool is_visible(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t b,
                std::int64_t n, std::int64_t i, std::int64_t j) {
    const KeyRange range = visible_range(shape, b, i);
    return j >= range.begin && j < range.end &&
           !(has_contents(shape) && is_hidden(shape, starts, b, n, i, j));
}

double bias_at(const FlashAttentionShape& shape, const SequenceStarts& starts, std::size_t b,
               std::int64_t n, std::int64_t i, std::int64_t j) {
    if (!shape.bias.present) return 0;
    if (shape.bias.type >= 2) return alibi(shape, b, n, i, j);
    const double given = external_bias(shape, starts, b, n, i, j);
    return shape.bias.type == 1 ? shape.scale * given : given;
}

namespace {

/// The rows of a problem, and the column of a pair of query and key.
class FlashColumns {
public:
    explicit FlashColumns(const FlashAttentionShape& shape)
        : shape_(shape),
          rows_(packed_queries("flash attention", shape)),
          starts_(shape),
          has_contents_(has_contents(shape)) {
        std::int64_t bit = 0;
        for (std::size_t b = 0; b < shape.query_lengths.size(); ++b)
            bit += shape.query_heads * shape.query_lengths[b] * shape.kv_lengths[b];
        if (shape.dropout.present &&
            static_cast<std::int64_t>(shape.dropout.bytes.size()) < (bit + 7) / 8)
            throw std::invalid_argument("flash attention: the drop mask has " +
                                        std::to_string(shape.dropout.bytes.size()) + " bytes for " +
                                        std::to_string(bit) + " bits");
    }
    const PackedQuery& row(std::int64_t t) const { return rows_[static_cast<std::size_t>(t)]; }
    KeyRange range(const PackedQuery& row) const {
        return visible_range(shape_, static_cast<std::size_t>(row.sequence), row.position);
    }

    /// Key j of the row's range, unless the mask hides it.
    void add(const PackedQuery& row, std::int64_t n, std::int64_t j,
             std::vector<KeyColumn>& columns) const {
        const auto b = static_cast<std::size_t>(row.sequence);
        const std::int64_t i = row.position;
        if (has_contents_ && is_hidden(shape_, starts_, b, n, i, j)) return;
        KeyColumn column{row.first_key + j, bias_at(shape_, starts_, b, n, i, j), true};
        if (shape_.dropout.present) {
            const std::int64_t e = shape_.query_heads * starts_.pair[b] +
                                   (n * shape_.query_lengths[b] + i) * shape_.kv_lengths[b] + j;
            column.kept = shape_.dropout.bytes[static_cast<std::size_t>(e >> 3)] >> (e & 7) & 1;
        }
        columns.push_back(column);
    }

private:
    FlashAttentionShape shape_;
    std::vector<PackedQuery> rows_;
    SequenceStarts starts_;
    bool has_contents_;
};

}  // namespace

ColumnLister flash_columns(const FlashAttentionShape& shape) {
    return columns_of_ranges(FlashColumns(shape));
}

ColumnLister flash_columns_of(const FlashAttentionShape& shape, std::span<const std::int64_t> keys) {
    return columns_of_keys(FlashColumns(shape), shape.dense(), keys);
}

std::vector<std::int64_t> statistics_order(const FlashAttentionShape& shape, bool same_as_input) {
    std::vector<std::int64_t> order(
        static_cast<std::size_t>(shape.total_queries * shape.query_heads));
    for (std::size_t p = 0; p < order.size(); ++p) order[p] = static_cast<std::int64_t>(p);
    if (same_as_input) return order;
    std::int64_t first = 0;
    for (const std::int64_t length : shape.query_lengths) {
        for (std::int64_t n = 0; n < shape.query_heads; ++n)
            for (std::int64_t i = 0; i < length; ++i)
                order[static_cast<std::size_t>(first * shape.query_heads + n * length + i)] =
                    (first + i) * shape.query_heads + n;
        first += length;
    }
    return order;
}

}  // namespace attncheck::ref
