#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_PLAN_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_PLAN_H

#include <cstdint>
#include <limits>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/operators/flash_attention/rows.h"
#include "impl/operators/flash_attention/shapes.h"

/// What the passes over tiles ask of an operator of dense attention: every layout, mask, bias and
/// order of the statistics becomes an answer about the pair (query i, key j) of a batch entry and
/// query head. One code path computes.
///
/// Legend   b batch entry or sequence, n query head, i and j positions inside b.
namespace attncheck::impl {

/// Extents of a tile of logits. A tile of 128 keys and 128 channels is 32 KiB in pairs of bf16 and
/// 64 KiB in fp32, which the second-level cache keeps; half as many keys were 3 % slower, for every
/// sum over keys is loaded and stored once per tile.
inline constexpr std::int64_t kFlashTileKeys = 128;
inline constexpr std::int64_t kFlashTileRows = 128;

inline constexpr std::int64_t padded_to_vectors(std::int64_t count) {
    return (count + 15) / 16 * 16;
}

/// Queries [query_begin, query_begin + rows) against keys [key_begin, key_begin + keys) of one
/// head.
struct FlashTile {
    std::int64_t b, head, query_begin, rows, key_begin, keys;

    /// Columns of its matrices, whose stride is kFlashTileKeys; those beyond the keys are hidden.
    std::int64_t cols() const { return padded_to_vectors(keys); }
};

/// Keys [first(i), last(i)) are visible to query i as far as sparse_mode and tokens go; the mask's
/// contents may hide more. Both bounds grow with i.
struct VisibleBand {
    std::int64_t low, high;  ///< i + low <= j <= i + high
    std::int64_t prefix;     ///< keys below it are visible as well; 0 where low matters
    std::int64_t key_len;

    std::int64_t first(std::int64_t i) const;
    std::int64_t last(std::int64_t i) const;
    /// Queries [first_query(k, len), last_query(k, len)) of `len` may see keys from or below k.
    std::int64_t first_query(std::int64_t key_begin, std::int64_t query_len) const;
    std::int64_t last_query(std::int64_t key_end, std::int64_t query_len) const;

    /// Queries from `begin` on that make a tile with keys [key_begin, key_end), and how many of
    /// these one of them may see. Along an edge of visibility tiles are low, so that little of what
    /// they multiply is hidden.
    struct Extent {
        std::int64_t rows, keys;
    };
    Extent tile_from(std::int64_t begin, std::int64_t end, std::int64_t key_begin,
                     std::int64_t key_end) const;
};

/// Maximum and sum of the exponentials of a row, and whether it sees a key.
struct RowStatistics {
    float row_max, row_sum;
    bool has_key = true;
};

class TilePlan {
public:
    TilePlan(const FlashExtents& extents, float scale) : extents_(extents), scale_(scale) {}
    TilePlan(const TilePlan&) = delete;
    TilePlan& operator=(const TilePlan&) = delete;
    virtual ~TilePlan() = default;

    const FlashExtents& extents() const { return extents_; }
    std::int64_t group_size() const { return extents_.query_heads / extents_.kv_heads; }
    float scale() const { return scale_; }
    /// A view of a tensor whose channels per head are `dim`.
    RowView rows(const attncheck_tensor& tensor, std::int64_t dim) const {
        return RowView(tensor, flash_axes(extents_.layout), dim);
    }
    virtual FlashSequence sequence(std::int64_t b) const = 0;
    virtual VisibleBand band(std::int64_t b) const = 0;

    /// Mask contents or biases may hide pairs inside the band.
    virtual bool reads_pairs() const = 0;
    /// Every pair of the tile is visible and there are no columns beyond its keys.
    bool sees_all(const FlashTile& tile) const;
    /// [rows, kFlashTileKeys] bytes: 1 for a visible pair, 0 elsewhere.
    void mark_seen(const FlashTile& tile, std::uint8_t* seen) const;

    /// What <q, k> is multiplied by before finish_products.
    virtual float logit_factor() const = 0;
    virtual bool changes_products() const = 0;
    /// Products times logit_factor become logits. Columns outside the band are left alone. `slopes`
    /// [rows, kFlashTileKeys] gets d logit / d product where has_slopes(), unless it is null.
    virtual void finish_products(const FlashTile& tile, float* products, float* slopes) const = 0;
    virtual bool has_slopes() const { return false; }
    /// A logit without a value of every row of a query head; -infinity: none.
    virtual float sink(std::int64_t) const { return -std::numeric_limits<float>::infinity(); }

    virtual bool has_dropout() const { return false; }
    /// 1 / keep_prob, by which dropout multiplies what it keeps.
    virtual float keep_factor() const { return 1.0f; }
    /// As mark_seen, for the pairs that dropout keeps.
    virtual void mark_kept(const FlashTile&, std::uint8_t*) const {}

    /// Those that a gradient is given.
    virtual RowStatistics statistics(std::int64_t b, std::int64_t head, std::int64_t i) const = 0;
    virtual void write_statistics(std::int64_t b, std::int64_t head, std::int64_t i,
                                  const RowStatistics& of) const = 0;

protected:
    /// Clears the flags of what contents hide among keys [begin, end) of the tile, query i.
    virtual void hide_pairs(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                            std::int64_t end, std::uint8_t* seen) const = 0;

private:
    FlashExtents extents_;
    float scale_;
};

/// Cuts the positions of every batch entry into tiles; a unit of work is a tile of one head.
class FlashUnits {
public:
    struct Unit {
        std::int64_t b, head, begin, end;
    };
    /// `of_keys` says which of the two lengths is cut.
    FlashUnits(const TilePlan& plan, bool of_keys, std::int64_t heads, std::int64_t tile);

    std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
    Unit unit(std::int64_t index) const;

private:
    std::int64_t length(std::int64_t b) const;

    const TilePlan& plan_;
    bool of_keys_;
    std::int64_t heads_, tile_;
    std::vector<std::int64_t> ends_;  // units up to and with entry b
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_PLAN_H
