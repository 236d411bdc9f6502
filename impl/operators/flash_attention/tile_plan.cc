#include "impl/operators/flash_attention/tile_plan.h"

#include <algorithm>

namespace attncheck::impl {

std::int64_t VisibleBand::first(std::int64_t i) const {
    return std::clamp<std::int64_t>(i + low, 0, key_len);
}

std::int64_t VisibleBand::last(std::int64_t i) const {
    return std::clamp<std::int64_t>(std::max(i + high + 1, prefix), 0, key_len);
}

std::int64_t VisibleBand::first_query(std::int64_t key_begin, std::int64_t query_len) const {
    // last(i) > key_begin
    return prefix > key_begin ? 0 : std::clamp<std::int64_t>(key_begin - high, 0, query_len);
}

std::int64_t VisibleBand::last_query(std::int64_t key_end, std::int64_t query_len) const {
    // first(i) < key_end
    return std::clamp<std::int64_t>(key_end - low, 0, query_len);
}

VisibleBand::Extent VisibleBand::tile_from(std::int64_t begin, std::int64_t end,
                                           std::int64_t key_begin, std::int64_t key_end) const {
    constexpr std::int64_t kRowsAlongAnEdge = 32;  // even, see TileRows::add_sum_over_rows
    const std::int64_t most = last(begin) < key_end ? kRowsAlongAnEdge : kFlashTileRows,
                       rows = std::min(most, end - begin);
    return {rows, std::min(key_end, last(begin + rows - 1)) - key_begin};
}

bool TilePlan::sees_all(const FlashTile& tile) const {
    if (reads_pairs() || tile.cols() != tile.keys) return false;
    const VisibleBand visible = band(tile.b);
    return visible.first(tile.query_begin + tile.rows - 1) <= tile.key_begin &&
           visible.last(tile.query_begin) >= tile.key_begin + tile.keys;
}

void TilePlan::mark_seen(const FlashTile& tile, std::uint8_t* seen) const {
    const VisibleBand visible = band(tile.b);
    for (std::int64_t r = 0; r < tile.rows; ++r, seen += kFlashTileKeys) {
        const std::int64_t i = tile.query_begin + r,
                           begin = std::max(visible.first(i) - tile.key_begin, std::int64_t{0}),
                           end = std::min(visible.last(i) - tile.key_begin, tile.keys);
        std::fill_n(seen, tile.cols(), std::uint8_t{0});
        for (std::int64_t k = begin; k < end; ++k) seen[k] = 1;
        if (reads_pairs() && begin < end) hide_pairs(tile, i, begin, end, seen);
    }
}

FlashUnits::FlashUnits(const TilePlan& plan, bool of_keys, std::int64_t heads, std::int64_t tile)
    : plan_(plan), of_keys_(of_keys), heads_(heads), tile_(tile) {
    ends_.reserve(static_cast<std::size_t>(plan.extents().batch));
    std::int64_t end = 0;
    for (std::int64_t b = 0; b < plan.extents().batch; ++b) {
        end += heads_ * ((length(b) + tile_ - 1) / tile_);
        ends_.push_back(end);
    }
}

std::int64_t FlashUnits::length(std::int64_t b) const {
    const FlashSequence s = plan_.sequence(b);
    return of_keys_ ? s.key_len : s.query_len;
}

// Consecutive units of a head go from the last tile to the first: with causal visibility the last
// queries have the most keys, and the last units to end should be small.
FlashUnits::Unit FlashUnits::unit(std::int64_t index) const {
    const auto entry = std::upper_bound(ends_.begin(), ends_.end(), index);
    const std::int64_t b = entry - ends_.begin(), before = b == 0 ? 0 : *(entry - 1),
                       len = length(b), tiles = (len + tile_ - 1) / tile_, within = index - before,
                       order = within / heads_, tile = of_keys_ ? order : tiles - 1 - order;
    return {b, within % heads_, tile * tile_, std::min(len, (tile + 1) * tile_)};
}

}  // namespace attncheck::impl
