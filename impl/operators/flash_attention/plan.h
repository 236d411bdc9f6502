#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/operators/flash_attention/rows.h"
#include "impl/operators/flash_attention/shapes.h"

/// A validated call in canonical form: every layout, mask, bias and order of the statistics becomes
/// an answer about the pair (query i, key j) of a batch entry and query head. One code path
/// computes.
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

class FlashPlan {
public:
    explicit FlashPlan(const FlashCall& call);

    const FlashCall& call() const { return call_; }
    const FlashExtents& extents() const { return extents_; }
    std::int64_t group_size() const { return extents_.query_heads / extents_.kv_heads; }
    FlashSequence sequence(std::int64_t b) const { return flash_sequence(call_, extents_, b); }
    VisibleBand band(std::int64_t b) const;
    float scale() const { return static_cast<float>(call_.scale_value); }
    bool has_bias() const { return bias_form_ != BiasForm::kNone; }
    bool has_dropout() const { return call_.has_dropout(); }
    /// 1 / keep_prob, by which dropout multiplies what it keeps.
    float keep_factor() const { return 1.0f / static_cast<float>(call_.keep_prob); }

    /// A view of a tensor whose channels per head are `dim`.
    RowView rows(const attncheck_tensor& tensor, std::int64_t dim) const {
        return RowView(tensor, flash_axes(extents_.layout), dim);
    }
    std::int64_t rope_dim() const { return call_.has_rope() ? call_.query_rope->shape[2] : 0; }

    /// Every pair of the tile is visible and there are no columns beyond its keys.
    bool sees_all(const FlashTile& tile) const;
    /// [rows, kFlashTileKeys] bytes: 1 for a visible pair, 0 elsewhere.
    void mark_seen(const FlashTile& tile, std::uint8_t* seen) const;
    /// The same for the pairs that dropout keeps.
    void mark_kept(const FlashTile& tile, std::uint8_t* kept) const;
    /// With a bias only: products <q, k> of the tile become logits by scale and bias
    /// (flash_attention.md 3.1). Columns outside the band get no bias, for there may be none.
    void add_bias(const FlashTile& tile, float* products) const;

    float first_statistic(const attncheck_tensor& statistic, std::int64_t b, std::int64_t head,
                          std::int64_t i) const;
    /// Writes the 8 copies.
    void write_statistic(const attncheck_tensor& statistic, std::int64_t b, std::int64_t head,
                         std::int64_t i, float value) const;
    /// Rows of TND beyond the last sequence.
    void write_statistic_beyond(const attncheck_tensor& statistic, std::int64_t row,
                                std::int64_t head, float value) const;

private:
    std::int64_t statistic_offset(const attncheck_tensor& statistic, std::int64_t b,
                                  std::int64_t head, std::int64_t i) const;
    std::int64_t prior_pairs(std::int64_t b) const;
    void load_bias(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                   float* to) const;
    void load_slopes(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                     float* to) const;
    void load_packed_compressed(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                                std::int64_t end, float* to) const;

    FlashCall call_;
    FlashExtents extents_;
    FlashLengths lengths_;
    BiasForm bias_form_;
    MaskForm mask_form_;
    bool reads_mask_, statistics_by_head_;
    std::int64_t band_entry_;
    double start_distance_;                  // kvStart - qStart
    std::vector<std::int64_t> prior_pairs_;  // of TND: N1 * S1 * S2 summed over earlier sequences
};

/// Cuts the positions of every batch entry into tiles; a unit of work is a tile of one head.
class FlashUnits {
public:
    struct Unit {
        std::int64_t b, head, begin, end;
    };
    /// `of_keys` says which of the two lengths is cut.
    FlashUnits(const FlashPlan& plan, bool of_keys, std::int64_t heads, std::int64_t tile);

    std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
    Unit unit(std::int64_t index) const;

private:
    std::int64_t length(std::int64_t b) const;

    const FlashPlan& plan_;
    bool of_keys_;
    std::int64_t heads_, tile_;
    std::vector<std::int64_t> ends_;  // units up to and with entry b
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H
