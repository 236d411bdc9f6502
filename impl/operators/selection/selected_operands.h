#ifndef ATTNCHECK_IMPL_SELECTED_OPERANDS_H
#define ATTNCHECK_IMPL_SELECTED_OPERANDS_H

#include <cstdint>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/operand.h"
#include "impl/operators/selection/key_selection.h"
#include "impl/operators/selection/selected_tile.h"
#include "impl/arguments/strided_rows.h"

/// Operands of the products of a tile of selected attention, in fp32 or as pairs of bf16 numbers
/// (bf16_dot_kernels.h).
///
/// Here an element is *plain* if a weight of 0 makes its share of a sum vanish: if it is finite in
/// fp32, in the sense of bf16_dot_kernels.h as a pair. Tiles of plain elements are multiplied whole
/// from blocks that are packed once per call; the others are for TileOperands, which gives every
/// number that is computed from plain elements the same bits.
namespace attncheck::impl {

/// Whether all of count (a multiple of 16) elements are plain.
bool all_plain(const std::uint16_t* elements, std::int64_t count, HalfFormat format,
               const AttentionKernels& kernels, bool as_pairs);

/// Rows of q or dO of the queries of a tile.
class GatheredRows {
public:
    GatheredRows(std::int64_t dim, HalfFormat format, const AttentionKernels& kernels,
                 bool as_pairs);

    /// from: [queries of the chunk, G, dim].
    void gather(const SelectedTile& tile, const std::uint16_t* from);
    /// out[key, c] += sum_row weights[row, key] * (this)[row, c]; the weights rounded for that.
    void add_sum_over_rows(const TileWeights& weights, std::int64_t keys, float* out);

private:
    friend class SelectedBlocks;

    const AttentionKernels& kernels_;
    bool as_pairs_;
    int format_;
    std::int64_t dim_, count_ = 0;
    AlignedBuffer<float> floats_;
    AlignedBuffer<std::uint16_t> halves_;
    AlignedBuffer<std::uint32_t> row_pairs_;
};

/// K or V by blocks. Only blocks that some query lists are packed; the memory of the others is
/// reserved and never touched.
///
/// Memory  per element and form 4 bytes, as pairs 2.
class SelectedBlocks {
public:
    /// For products with rows, and for sums over keys.
    enum Forms { kColumns = 1, kRows = 2, kBoth = 3 };

    /// listed: [num_kv_heads, num_blocks], see listed_blocks.
    SelectedBlocks(const attncheck_tensor& tensor, const KeySelection& selection,
                   const std::vector<std::uint8_t>& listed, const AttentionKernels& kernels,
                   Forms forms);

    bool is_plain(const SelectedTile& tile) const {
        return is_plain_[static_cast<std::size_t>(first_row(tile) / block_)] != 0;
    }
    /// out[row, key] = factor * <row, key> for the first cols() keys of the tile's block, which is
    /// plain; out [rows, kFlashTileKeys].
    void multiply(const GatheredRows& rows, const SelectedTile& tile, float factor,
                  float* out) const;
    /// out[row, c] = sum_key weights[row, key] * (this)[key, c]; the weights rounded for that.
    void sum_over_keys(const TileWeights& weights, const SelectedTile& tile, float* out) const;

private:
    std::int64_t first_row(const SelectedTile& tile) const {
        return tile.kv_head() * num_keys_ + tile.key_token();
    }
    void pack(const std::uint16_t* halves, std::int64_t first_row, Forms forms);

    const AttentionKernels& kernels_;
    bool as_pairs_;
    HalfFormat format_;
    std::int64_t num_keys_, dim_, block_;
    std::int64_t words_;                  // of a row: dim numbers or dim / 2 pairs
    std::vector<std::uint8_t> is_plain_;  // [num_kv_heads, num_blocks]
    // [words_, block] and [block, dim], or [block / 2, dim], per block
    AlignedBuffer<std::uint32_t> columns_, rows_;
};

/// The operands of a tile as dense attention has them, for tiles with elements that are not plain.
class TileOperands {
public:
    TileOperands(const attncheck_tensor& key, const attncheck_tensor& value,
                 const AttentionKernels& kernels);

    /// Gathers rows of q [queries of the chunk, G, D] and, unless null, dO, and copies the block
    /// unless it was the last.
    void start(const SelectedTile& tile, std::int64_t block, const std::uint16_t* query,
               const std::uint16_t* output_grad);
    TileRows& query() { return query_; }
    TileRows& output_grad() { return output_grad_; }
    TileRows& key() { return key_; }
    TileRows& value() { return value_; }
    PairFlags visible() const { return {seen_.data(), nullptr}; }

private:
    StridedRows<const std::uint16_t> key_tensor_, value_tensor_;
    HalfFormat format_;
    TileRows query_, output_grad_, key_, value_;
    std::int64_t kv_head_ = -1, key_token_ = -1;
    AlignedBuffer<std::uint8_t> seen_;
    std::vector<std::uint16_t> gathered_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SELECTED_OPERANDS_H
