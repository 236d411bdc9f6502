#ifndef ATTNCHECK_IMPL_KEY_TILE_H
#define ATTNCHECK_IMPL_KEY_TILE_H

#include <cstdint>
#include <cstring>

#include "impl/attention_kernels.h"
#include "impl/key_panels.h"
#include "impl/key_selection.h"
#include "impl/nsa_selected_attention.h"

/// The visible keys of one query and kv head, block by block, gathered into tiles.
namespace attncheck::impl {

/// Left operand and result of one product of a tile: out[rows, kTileKeys] = factor * left * keys^T.
struct TileProduct {
    const float* left;  // [rows, dim]
    const TransposedPanels* panels;
    std::int64_t dim;
    float factor;
    float* out;
};

/// Columns are visible keys, in the order of the list; hidden keys leave no column. Products are
/// formed with whole groups of 16 keys and the hidden columns then closed up: a lane never reaches
/// another one.
class KeyTile {
public:
    KeyTile(const ContiguousRows& rows, std::int64_t num_rows,
            void (*panel_product)(const PanelProduct&))
        : rows_(rows), num_rows_(num_rows), panel_product_(panel_product) {}

    std::int64_t cols() const { return cols_; }
    /// Rows of 16-bit numbers of the keys, one per column.
    const std::uint16_t* const* key_rows() const { return key_rows_; }
    bool has_room(std::int64_t block) const { return cols_ + block <= kTileKeys; }
    void clear() { cols_ = 0; }

    template <std::size_t kProducts>
    void add_block(std::int64_t kv_head, std::int64_t key_token, const VisibleRanges& seen,
                   const TileProduct (&products)[kProducts]) {
        const std::int64_t groups = (seen.range[seen.count - 1].end + kKeyGroup - 1) / kKeyGroup;
        for (const TileProduct& product : products) {
            panel_product_({product.left, product.dim, num_rows_,
                            product.panels->at(kv_head, key_token), product.dim, groups * kKeyGroup,
                            product.factor, product.out + cols_, kTileKeys});
        }
        const std::int64_t first_col = cols_;
        for (int i = 0; i < seen.count; ++i) {
            const KeyRange range = seen.range[i];
            for (const TileProduct& product : products) {
                move_columns(product.out, first_col + range.begin, range.end - range.begin);
            }
            for (std::int64_t key = range.begin; key < range.end; ++key) {
                key_rows_[cols_++] = rows_.at(kv_head, key_token + key);
            }
        }
    }

    /// Fills the columns up to the next multiple of 16 and returns it.
    std::int64_t pad(float* matrix, float value) const {
        const std::int64_t padded = (cols_ + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
        for (std::int64_t row = 0; row < num_rows_; ++row) {
            for (std::int64_t col = cols_; col < padded; ++col) {
                matrix[row * kTileKeys + col] = value;
            }
        }
        return padded;
    }

private:
    void move_columns(float* matrix, std::int64_t from, std::int64_t count) const {
        if (from == cols_) return;
        for (std::int64_t row = 0; row < num_rows_; ++row, matrix += kTileKeys) {
            std::memmove(matrix + cols_, matrix + from,
                         static_cast<std::size_t>(count) * sizeof(float));
        }
    }

    const ContiguousRows& rows_;
    std::int64_t num_rows_;
    void (*panel_product_)(const PanelProduct&);
    std::int64_t cols_ = 0;
    const std::uint16_t* key_rows_[kTileKeys];
};

/// Visits the tiles of one list: fills `tile` through `products` and calls consume() whenever it is
/// full and at the end. Returns whether any key was visible.
template <std::size_t kProducts, class Consume>
bool for_each_tile(const KeySelection& selection, const Sequence& sequence, std::int64_t query,
                   std::int64_t kv_head, const TileProduct (&products)[kProducts], KeyTile& tile,
                   const Consume& consume) {
    bool any = false;
    VisibleRanges seen;
    tile.clear();
    for (std::int64_t i = 0; sequence.has_keys() && i < selection.count(); ++i) {
        const std::int64_t key_pos = selection.listed_block(query, kv_head, i) * selection.block();
        selection.visible_ranges(query - sequence.query_begin, key_pos, selection.block(), seen);
        if (seen.count == 0) continue;
        any = true;
        if (!tile.has_room(selection.block())) {
            consume();
            tile.clear();
        }
        tile.add_block(kv_head, sequence.key_begin + key_pos, seen, products);
    }
    if (tile.cols() > 0) consume();
    return any;
}

/// Cuts T1 x N2 into units of queries of one kv head, each of about the same small amount of work.
struct QueryUnits {
    std::int64_t num_tokens, queries_per_unit, units_per_head, num_kv_heads;

    QueryUnits(std::int64_t tokens, std::int64_t kv_heads, std::int64_t products_per_query)
        : num_tokens(tokens), num_kv_heads(kv_heads) {
        // 2^23 products take about 200 us; 4 queries at least share what a unit allocates.
        constexpr std::int64_t kProductsPerUnit = std::int64_t{1} << 23;
        queries_per_unit = std::clamp<std::int64_t>(kProductsPerUnit / products_per_query, 4, 256);
        units_per_head = (tokens + queries_per_unit - 1) / queries_per_unit;
    }
    std::int64_t count() const { return units_per_head * num_kv_heads; }
    std::int64_t kv_head(std::int64_t unit) const { return unit / units_per_head; }
    std::int64_t begin(std::int64_t unit) const { return unit % units_per_head * queries_per_unit; }
    std::int64_t end(std::int64_t unit) const {
        return std::min(num_tokens, begin(unit) + queries_per_unit);
    }
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_KEY_TILE_H
