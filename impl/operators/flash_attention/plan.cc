#include "impl/operators/flash_attention/plan.h"

#include <algorithm>
#include <cmath>

namespace attncheck::impl {
namespace {

// Further than any pair of positions (2^20 each), and sums of a few of them do not overflow.
constexpr std::int64_t kFar = std::int64_t{1} << 40;

std::int64_t bounded_tokens(std::int64_t tokens) { return std::clamp(tokens, -kFar, kFar); }

// Offset of element number `index` in row-major order.
std::int64_t linear_offset(const attncheck_tensor& tensor, std::int64_t index) {
    std::int64_t offset = 0;
    for (int d = tensor.rank - 1; d > 0; --d) {
        offset += index % tensor.shape[d] * tensor.strides[d];
        index /= tensor.shape[d];
    }
    return offset + index * tensor.strides[0];
}

// A dimension of extent 1 stands for all batch entries or heads; its stride may be anything.
std::int64_t broadcast_offset(const attncheck_tensor& tensor, int dim, std::int64_t index) {
    return tensor.shape[dim] == 1 ? 0 : index * tensor.strides[dim];
}

}  // namespace

FlashPlan::FlashPlan(const FlashCall& call)
    : TilePlan(flash_extents(call), static_cast<float>(call.scale_value)),
      call_(call),
      lengths_(flash_lengths(call, extents())),
      bias_form_(*bias_form(call, extents(), lengths_)),
      mask_form_(*mask_form(call, extents(), lengths_)),
      reads_mask_(mask_form_ == MaskForm::kPerEntry || mask_form_ == MaskForm::kPacked),
      statistics_by_head_(extents().is_packed() && call.statistics_layout[0] == '\0'),
      band_entry_(call.has_mask() ? band_entry(call, extents()) : -1),
      start_distance_(static_cast<double>(call.start_distance())) {
    if (!extents().is_packed()) return;
    prior_pairs_.reserve(static_cast<std::size_t>(extents().batch));
    std::int64_t pairs = 0;
    for (std::int64_t b = 0; b < extents().batch; ++b) {
        const FlashSequence s = sequence(b);
        prior_pairs_.push_back(pairs);
        pairs += extents().query_heads * s.query_len * s.key_len;
    }
}

// flash_attention.md 3.4.
VisibleBand FlashPlan::band(std::int64_t b) const {
    const FlashSequence s = sequence(b);
    const std::int64_t pre = bounded_tokens(call_.pre_tokens),
                       next = bounded_tokens(call_.next_tokens), delta = s.key_len - s.query_len;
    VisibleBand band{-kFar, kFar, 0, s.key_len};
    if (!call_.has_mask()) return band;
    const bool split = b == band_entry_;
    switch (call_.sparse_mode) {
        case 0:
            band.low = -pre;
            band.high = next;
            break;
        case 2:
            band.high = 0;
            break;
        case 3:
            band.high = delta;
            break;
        case 4:
            band.low = delta - pre;
            band.high = delta + next;
            break;
        case 6:
            band.high = delta;
            band.prefix = call_.prefix->values[b];
            break;
        case 7:
            band.high = split ? delta + next : delta;
            break;
        case 8:
            band.high = split ? delta + next : 0;
            break;
        default:
            break;
    }
    return band;
}

void FlashPlan::hide_pairs(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                           std::int64_t end, std::uint8_t* seen) const {
    const FlashSequence s = sequence(tile.b);
    const attncheck_tensor& mask = *call_.atten_mask;
    const std::uint8_t* contents = static_cast<const std::uint8_t*>(mask.data);
    const bool packed = mask_form_ == MaskForm::kPacked;
    const std::int64_t row_origin = packed ? s.query_begin : 0,
                       col_origin = packed ? s.key_begin : 0;
    if (mask.rank == 4)
        contents += broadcast_offset(mask, 0, tile.b) + broadcast_offset(mask, 1, tile.head);
    const std::int64_t row_stride = mask.strides[mask.rank - 2],
                       col_stride = mask.strides[mask.rank - 1],
                       row = (row_origin + i) * row_stride, col = col_origin + tile.key_begin;
    for (std::int64_t k = begin; k < end; ++k) {
        seen[k] = contents[row + (col + k) * col_stride] == 0;
    }
}

std::int64_t FlashPlan::prior_pairs(std::int64_t b) const {
    if (extents().is_packed()) return prior_pairs_[static_cast<std::size_t>(b)];
    return b * (extents().query_heads * extents().query_len * extents().key_len);
}

// contract.md, decision 9: one bit per pair, least significant first, no padding of rows.
void FlashPlan::mark_kept(const FlashTile& tile, std::uint8_t* kept) const {
    const attncheck_tensor& bits = *call_.drop_mask;
    const FlashSequence s = sequence(tile.b);
    const std::uint8_t* data = static_cast<const std::uint8_t*>(bits.data);
    for (std::int64_t r = 0; r < tile.rows; ++r, kept += kFlashTileKeys) {
        const std::int64_t i = tile.query_begin + r;
        std::int64_t bit =
            prior_pairs(tile.b) + (tile.head * s.query_len + i) * s.key_len + tile.key_begin;
        std::fill_n(kept, tile.cols(), std::uint8_t{0});
        for (std::int64_t k = 0; k < tile.keys;) {
            const std::uint32_t byte = data[linear_offset(bits, bit / 8)];
            do {
                kept[k++] = byte >> bit % 8 & 1;
            } while (++bit % 8 != 0 && k < tile.keys);
        }
    }
}

void FlashPlan::finish_products(const FlashTile& tile, float* products, float*) const {
    if (!changes_products()) return;
    const float factor = scale();
    const VisibleBand visible = band(tile.b);
    for (std::int64_t r = 0; r < tile.rows; ++r, products += kFlashTileKeys) {
        const std::int64_t i = tile.query_begin + r,
                           begin = std::max(visible.first(i), tile.key_begin),
                           end = std::min(visible.last(i), tile.key_begin + tile.keys);
        if (begin >= end) continue;
        float bias[kFlashTileKeys];
        load_bias(tile, i, begin, end, bias);
        float* row = products + (begin - tile.key_begin);
        for (std::int64_t k = 0; k < end - begin; ++k) {
            row[k] = call_.bias_type == 1 ? (row[k] + bias[k]) * factor : row[k] * factor + bias[k];
        }
    }
}

// flash_attention.md 3.2.
void FlashPlan::load_bias(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                          std::int64_t end, float* to) const {
    if (bias_form_ == BiasForm::kSlopes) return load_slopes(tile, i, begin, end, to);
    const attncheck_tensor& bias = *call_.bias;
    const bool packed = extents().is_packed();
    if (bias_form_ == BiasForm::kCompressed && packed)
        return load_packed_compressed(tile, i, begin, end, to);
    const FlashSequence s = sequence(tile.b);
    std::int64_t start = 0, stride = bias.strides[bias.rank - 1];
    if (bias_form_ == BiasForm::kFlatKeys) {
        start = (s.key_begin * extents().query_heads + tile.head * s.key_len) * stride;
    } else if (bias_form_ == BiasForm::kFlatPairs) {
        start = (prior_pairs(tile.b) + (tile.head * s.query_len + i) * s.key_len) * stride;
    } else {
        start = broadcast_offset(bias, 0, tile.b) + tile.head * bias.strides[1];
        const std::int64_t stored_from = s.key_len - kCompressedBiasRows;
        if (bias_form_ == BiasForm::kFull) {
            start += broadcast_offset(bias, 2, i);
        } else if (i >= stored_from) {
            start += (i - stored_from) * bias.strides[2];
        } else {  // a stored row of the same distances: shift the columns by as much as the row
            const std::int64_t row = i % kCompressedBiasRows;
            start += row * bias.strides[2] + (stored_from + row - i) * stride;
        }
    }
    for (std::int64_t j = begin; j < end; ++j) {
        to[j - begin] = widen_element(bias.dtype, bias.data, start + j * stride);
    }
}

// Any stored element of the same distance would do; the first column and the first row have one of
// each. Sequences may be shorter than the longest, which is the one that was compressed.
void FlashPlan::load_packed_compressed(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                                       std::int64_t end, float* to) const {
    const attncheck_tensor& bias = *call_.bias;
    const std::int64_t slice = broadcast_offset(bias, 0, tile.b) + tile.head * bias.strides[1];
    for (std::int64_t j = begin; j < end; ++j) {
        const std::int64_t t = i - j - (lengths_.max_key_len - kCompressedBiasRows);
        const std::int64_t within = t >= 0 ? t * bias.strides[2] : -t * bias.strides[3];
        to[j - begin] = widen_element(bias.dtype, bias.data, slice + within);
    }
}

// ALiBi: -slope * distance or, type 3, its root. Distances are exact up to 2^53.
void FlashPlan::load_slopes(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                            std::int64_t end, float* to) const {
    const attncheck_tensor& slopes = *call_.bias;
    const std::int64_t offset = slopes.rank == 1
                                    ? tile.head * slopes.strides[0]
                                    : tile.b * slopes.strides[0] + tile.head * slopes.strides[1];
    const float slope = static_cast<const float*>(slopes.data)[offset];
    const bool shifted = !(call_.has_mask() && call_.sparse_mode == 8 && tile.b != 0);
    const double start = shifted ? start_distance_ : 0.0;
    for (std::int64_t j = begin; j < end; ++j) {
        const double distance = std::fabs(static_cast<double>(j - i) + start);
        to[j - begin] =
            -slope * static_cast<float>(call_.bias_type == 2 ? distance : std::sqrt(distance));
    }
}

std::int64_t FlashPlan::statistic_offset(const attncheck_tensor& statistic, std::int64_t b,
                                         std::int64_t head, std::int64_t i) const {
    const std::int64_t* strides = statistic.strides;
    if (!extents().is_packed()) return b * strides[0] + head * strides[1] + i * strides[2];
    const FlashSequence s = sequence(b);
    if (!statistics_by_head_) return (s.query_begin + i) * strides[0] + head * strides[1];
    // A block [N1, S1] per sequence, laid over the rows of [T1, N1].
    const std::int64_t row = s.query_begin * extents().query_heads + head * s.query_len + i;
    return row / extents().query_heads * strides[0] + row % extents().query_heads * strides[1];
}

RowStatistics FlashPlan::statistics(std::int64_t b, std::int64_t head, std::int64_t i) const {
    const auto first_of = [&](const attncheck_tensor& statistic) {
        return static_cast<const float*>(statistic.data)[statistic_offset(statistic, b, head, i)];
    };
    return {first_of(*call_.softmax_max), first_of(*call_.softmax_sum)};
}

void FlashPlan::write_statistics(std::int64_t b, std::int64_t head, std::int64_t i,
                                 const RowStatistics& of) const {
    constexpr float kMax = std::numeric_limits<float>::max();
    write_statistic(*call_.softmax_max, b, head, i, of.has_key ? of.row_max : -kMax);
    write_statistic(*call_.softmax_sum, b, head, i, of.has_key ? of.row_sum : kMax);
}

void FlashPlan::write_statistic(const attncheck_tensor& statistic, std::int64_t b,
                                std::int64_t head, std::int64_t i, float value) const {
    float* to = static_cast<float*>(statistic.data) + statistic_offset(statistic, b, head, i);
    const int lane = statistic.rank - 1;
    for (std::int64_t k = 0; k < statistic.shape[lane]; ++k)
        to[k * statistic.strides[lane]] = value;
}

void FlashPlan::write_statistic_beyond(const attncheck_tensor& statistic, std::int64_t row,
                                       std::int64_t head, float value) const {
    float* to = static_cast<float*>(statistic.data) + row * statistic.strides[0] +
                head * statistic.strides[1];
    for (std::int64_t k = 0; k < statistic.shape[2]; ++k) to[k * statistic.strides[2]] = value;
}

}  // namespace attncheck::impl
