#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_H

#include <cstdint>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/tile_plan.h"
#include "impl/arguments/strided_rows.h"

/// Operands in fp32 and flags of one tile of logits.
///
/// A hidden pair must not be multiplied: its probability is exactly 0, but 0 * NaN is not. Whole
/// tiles are multiplied all the same, with right operands whose NaN and infinities are replaced by
/// 0; the few products this leaves out are then added pair by pair where the pair is visible. Sums
/// that meet no such element have the same bits whether or not there are any.
namespace attncheck::impl {

/// Which pairs count, [rows, kFlashTileKeys] bytes each; null means all.
struct PairFlags {
    const std::uint8_t* seen = nullptr;
    const std::uint8_t* kept = nullptr;

    bool counts(std::int64_t row, std::int64_t key) const {
        const std::int64_t at = row * kFlashTileKeys + key;
        return (seen == nullptr || seen[at] != 0) && (kept == nullptr || kept[at] != 0);
    }
};

/// Consecutive rows of one head, widened, with rope channels behind the others; zeros fill each row
/// up to width(), a multiple of 16.
class PackedRows {
public:
    PackedRows(std::int64_t max_rows, std::int64_t dim);

    std::int64_t dim() const { return dim_; }
    std::int64_t width() const { return width_; }
    const float* data() const { return rows_.data(); }
    const float* row(std::int64_t r) const { return rows_.data() + r * width_; }

    /// `rope` may be a view of dim 0.
    void load(const RowView& view, const RowView& rope, std::int64_t b, std::int64_t head,
              std::int64_t position, std::int64_t count, const AttentionKernels& kernels);
    /// The same from rows [count, width()] of 16-bit numbers.
    void load_halves(const std::uint16_t* rows, std::int64_t count, HalfFormat format,
                     const AttentionKernels& kernels);
    /// After load: to[c, r] = row r, channel c; stride kFlashTileKeys, zeros up to 16-fold columns.
    void transpose(float* to, const AttentionKernels& kernels) const;
    /// After load: makes the operand of the sums below.
    void set_aside_non_finite(const AttentionKernels& kernels);
    /// [count, width()]: the rows with 0 in place of what is not finite.
    const float* operand() const { return aside_.empty() ? rows_.data() : finite_.data(); }

    /// out[row, c] += sum_key left[row, key] * (this)[key, c] over the pairs that count and the
    /// first `keys` keys.
    /// left [rows, kFlashTileKeys] is finite or 0 where a pair does not count; out [rows, width()].
    void add_sum_over_keys(const float* left, std::int64_t rows, std::int64_t keys, PairFlags flags,
                           float* out, const AttentionKernels& kernels) const;
    /// out[key, c] += sum_row left[row, key] * (this)[begin + row, c], rows of them.
    void add_sum_over_rows(const float* left, std::int64_t begin, std::int64_t rows,
                           std::int64_t keys, PairFlags flags, float* out,
                           const AttentionKernels& kernels) const;
    /// The share of what is not finite in these two.
    void add_aside_over_keys(const float* left, std::int64_t rows, std::int64_t keys,
                             PairFlags flags, float* out) const;
    void add_aside_over_rows(const float* left, std::int64_t begin, std::int64_t rows,
                             std::int64_t keys, PairFlags flags, float* out) const;

private:
    struct Element {
        std::int64_t row, channel;
        float value;
    };

    std::int64_t dim_, width_, count_ = 0;
    AlignedBuffer<float> rows_;
    std::vector<float> finite_;  // as rows_, with 0 in place of what is in aside_
    std::vector<Element> aside_;
};

/// A tile of pairs: which are visible, and its logits.
class PairTile {
public:
    PairTile(const TilePlan& plan, std::int64_t max_rows);

    /// Chooses the tile; computes flags.
    void start(const FlashTile& tile);
    const FlashTile& tile() const { return tile_; }
    PairFlags visible() const { return {sees_all_ ? nullptr : seen_.data(), nullptr}; }
    PairFlags visible_and_kept() const {
        return {sees_all_ ? nullptr : seen_.data(), plan_.has_dropout() ? kept_.data() : nullptr};
    }
    /// Whether products are logits as they are, all of them, and weights what softmax makes of
    /// them.
    bool keeps_products() const { return sees_all_ && !plan_.changes_products() && !plan_.has_dropout(); }
    /// Products times TilePlan::logit_factor become logits: what the plan makes of them, and -infinity
    /// for hidden pairs. `slopes` as in TilePlan::finish_products.
    void finish_logits(float* products, float* slopes = nullptr) const;
    /// Exactly `value` for hidden pairs, whatever was there.
    void fill_hidden(float* matrix, float value) const;
    /// Times `factor` where kept, exactly 0 where dropped; nothing without dropout.
    void drop(float* matrix, float factor) const;
    /// Marks the rows that see a key of this tile.
    void note_rows_with_keys(std::uint8_t* has_key) const;
    /// Marks the keys that a row of this tile sees.
    void note_keys_with_rows(std::uint8_t* has_row) const;

private:
    const TilePlan& plan_;
    FlashTile tile_{};
    bool sees_all_ = false;
    AlignedBuffer<std::uint8_t> seen_, kept_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_TILE_H
