#ifndef ATTNCHECK_IMPL_SELECTED_PAIRS_PROBLEM_H
#define ATTNCHECK_IMPL_SELECTED_PAIRS_PROBLEM_H

#include <cstdint>
#include <vector>

#include "impl/key_panels.h"
#include "impl/key_selection.h"

namespace attncheck::impl {

/// A call of selected attention, forward or gradient, whose products are those of bf16 pairs: its
/// sizes and selection, and keys and values that any query lists packed for the products.
template <class Args>
struct SelectedPairsProblem {
    const Args& args;
    const AttentionKernels& kernels;
    KeySelection selection;
    std::vector<std::uint8_t> listed;
    PairPanels keys, values;
    std::int64_t group_size, head_dim, value_dim;
    float scale;

    SelectedPairsProblem(const Args& a, const AttentionKernels& table, PairPanels::Forms key_forms,
                         PairPanels::Forms value_forms)
        : args(a),
          kernels(table),
          selection(a),
          listed(listed_blocks(selection)),
          keys(input_rows(a.key), a.key.shape[2], selection, listed, table, key_forms),
          values(input_rows(a.value), a.value.shape[2], selection, listed, table, value_forms),
          group_size(a.query.shape[1] / a.key.shape[1]),
          head_dim(a.query.shape[2]),
          value_dim(a.value.shape[2]),
          scale(static_cast<float>(a.scale_value)) {}
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SELECTED_PAIRS_PROBLEM_H
