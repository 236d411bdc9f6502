#ifndef ATTNCHECK_IMPL_SELECTED_CALL_H
#define ATTNCHECK_IMPL_SELECTED_CALL_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "impl/operators/selection/key_selection.h"
#include "impl/operators/selection/selected_operands.h"

namespace attncheck::impl {

/// A call of selected attention, forward or gradient: its sizes and selection, and keys and values
/// that any query lists, packed.
template <class Args>
struct SelectedCall {
    const Args& args;
    const AttentionKernels& kernels;
    bool as_pairs;
    HalfFormat format;
    KeySelection selection;
    std::vector<std::uint8_t> listed;
    SelectedBlocks keys, values;
    std::int64_t group_size, head_dim, value_dim;
    float scale;

    SelectedCall(const Args& a, const AttentionKernels& table, SelectedBlocks::Forms key_forms,
                 SelectedBlocks::Forms value_forms)
        : args(a),
          kernels(table),
          as_pairs(takes_pairs(a.query.dtype, table)),
          format(half_format(a.query)),
          selection(a),
          listed(listed_blocks(selection)),
          keys(a.key, selection, listed, table, key_forms),
          values(a.value, selection, listed, table, value_forms),
          group_size(a.query.shape[1] / a.key.shape[1]),
          head_dim(a.query.shape[2]),
          value_dim(a.value.shape[2]),
          scale(static_cast<float>(a.scale_value)) {}

    bool is_plain(const std::uint16_t* elements, std::int64_t count) const {
        return all_plain(elements, count, format, kernels, as_pairs);
    }
    /// Whether the tile's block is plain in K and in V, and so are its queries by their flags.
    bool is_plain(const SelectedTile& tile, const std::vector<std::uint8_t>& query_is_plain) const {
        const std::int32_t* queries = tile.queries();
        return keys.is_plain(tile) && values.is_plain(tile) &&
               std::all_of(queries, queries + tile.num_queries(), [&](std::int32_t query) {
                   return query_is_plain[static_cast<std::size_t>(query)] != 0;
               });
    }
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SELECTED_CALL_H
