#ifndef ATTNCHECK_IMPL_KEY_PANELS_H
#define ATTNCHECK_IMPL_KEY_PANELS_H

#include <cstdint>
#include <vector>

#include "impl/attention_kernels.h"
#include "impl/key_selection.h"
#include "impl/strided_rows.h"

/// K and V in the orders the products want. Only blocks that some query lists are packed; the
/// memory of the others is reserved and never touched.
namespace attncheck::impl {

/// Rows transposed in groups of kKeyGroup keys: [num_heads, num_keys / kKeyGroup, dim, kKeyGroup],
/// the right operand of a PanelProduct. A block is contiguous.
class TransposedPanels {
public:
    /// listed: [num_heads, num_blocks], see listed_blocks.
    TransposedPanels(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
                     const KeySelection& selection, const std::vector<std::uint8_t>& listed);

    /// Panels from `key_token` on, a multiple of kKeyGroup.
    const std::uint16_t* at(std::int64_t head, std::int64_t key_token) const {
        return packed_.data() + (head * num_keys_ + key_token) * dim_;
    }

private:
    std::int64_t num_keys_, dim_;
    AlignedBuffer<std::uint16_t> packed_;
};

/// Rows with the channels next to each other, the right operand of a RowProduct: the tensor itself
/// where its strides allow, otherwise a copy.
class ContiguousRows {
public:
    ContiguousRows(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
                   const KeySelection& selection, const std::vector<std::uint8_t>& listed);

    const std::uint16_t* at(std::int64_t head, std::int64_t key_token) const {
        return rows_.at(key_token, head);
    }

private:
    AlignedBuffer<std::uint16_t> packed_;
    StridedRows<const std::uint16_t> rows_;
};

/// Blocks of bf16 rows as right operands of pair products (bf16_dot_kernels.h). A block with an
/// element that is not plain has no operand and is for TileRows.
class PairPanels {
public:
    enum Forms { kColumns = 1, kRowPairs = 2, kBoth = 3 };

    PairPanels(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
               const KeySelection& selection, const std::vector<std::uint8_t>& listed,
               const AttentionKernels& kernels, Forms forms);

    bool is_plain(std::int64_t head, std::int64_t key_token) const {
        return is_plain_[static_cast<std::size_t>((head * num_keys_ + key_token) / block_)] != 0;
    }
    /// Pairs of channels, [dim / 2, block]: of products with other rows.
    const std::uint32_t* columns(std::int64_t head, std::int64_t key_token) const {
        return columns_.data() + (head * num_keys_ + key_token) * dim_ / 2;
    }
    /// Pairs of keys, [block / 2, dim]: of sums over keys.
    const std::uint32_t* row_pairs(std::int64_t head, std::int64_t key_token) const {
        return row_pairs_.data() + (head * num_keys_ + key_token) * dim_ / 2;
    }

private:
    std::int64_t num_keys_, dim_, block_;
    std::vector<std::uint8_t> is_plain_;  // [num_heads, num_blocks]
    AlignedBuffer<std::uint32_t> columns_, row_pairs_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_KEY_PANELS_H
