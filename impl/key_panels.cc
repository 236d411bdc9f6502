#include "impl/key_panels.h"

#include "impl/thread_pool.h"

namespace attncheck::impl {
namespace {

// visit(head, first key token) for every listed block, on all threads.
template <class Visit>
void for_each_listed_block(const KeySelection& selection, const std::vector<std::uint8_t>& listed,
                           const Visit& visit) {
    constexpr std::int64_t kBlocksPerUnit = 16;  // about 100 us of copying
    const std::int64_t total = static_cast<std::int64_t>(listed.size()),
                       num_blocks = selection.num_blocks();
    parallel_for((total + kBlocksPerUnit - 1) / kBlocksPerUnit, [&](std::int64_t unit) {
        const std::int64_t end = std::min(total, (unit + 1) * kBlocksPerUnit);
        for (std::int64_t i = unit * kBlocksPerUnit; i < end; ++i) {
            if (listed[static_cast<std::size_t>(i)] == 0) continue;
            visit(i / num_blocks, i % num_blocks * selection.block());
        }
    });
}

void transpose_group(const std::uint16_t* from, std::int64_t row_stride, std::int64_t dim_stride,
                     std::int64_t dim, std::uint16_t* to) {
    for (std::int64_t c = 0; c < dim; ++c) {
        const std::uint16_t* channel = from + c * dim_stride;
        for (std::int64_t key = 0; key < kKeyGroup; ++key) *to++ = channel[key * row_stride];
    }
}

}  // namespace

TransposedPanels::TransposedPanels(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
                                   const KeySelection& selection,
                                   const std::vector<std::uint8_t>& listed)
    : num_keys_(selection.num_keys()),
      dim_(dim),
      packed_(selection.num_kv_heads() * num_keys_ * dim) {
    for_each_listed_block(selection, listed, [&](std::int64_t head, std::int64_t token) {
        for (std::int64_t group = 0; group < selection.block(); group += kKeyGroup) {
            transpose_group(rows.at(token + group, head), rows.row_stride, rows.dim_stride, dim,
                            packed_.data() + (head * num_keys_ + token + group) * dim);
        }
    });
}

ContiguousRows::ContiguousRows(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
                               const KeySelection& selection,
                               const std::vector<std::uint8_t>& listed)
    : packed_(rows.contiguous_dim() ? 0 : selection.num_kv_heads() * selection.num_keys() * dim),
      rows_(rows) {
    if (rows.contiguous_dim()) return;
    rows_ = {packed_.data(), dim, selection.num_keys() * dim, 1};
    for_each_listed_block(selection, listed, [&](std::int64_t head, std::int64_t token) {
        gather(rows, {token, selection.block(), head, 1, dim},
               packed_.data() + (head * selection.num_keys() + token) * dim);
    });
}

PairPanels::PairPanels(const StridedRows<const std::uint16_t>& rows, std::int64_t dim,
                       const KeySelection& selection, const std::vector<std::uint8_t>& listed,
                       const AttentionKernels& kernels, Forms forms)
    : num_keys_(selection.num_keys()),
      dim_(dim),
      block_(selection.block()),
      is_plain_(listed.size()),
      columns_((forms & kColumns) != 0 ? selection.num_kv_heads() * num_keys_ * dim / 2 : 0),
      row_pairs_((forms & kRowPairs) != 0 ? selection.num_kv_heads() * num_keys_ * dim / 2 : 0) {
    for_each_listed_block(selection, listed, [&](std::int64_t head, std::int64_t token) {
        alignas(64) std::uint16_t halves[kMaxSelectedBlock * kMaxAttentionDim];
        gather(rows, {token, block_, head, 1, dim}, halves);
        const std::int64_t at = head * num_keys_ + token;
        if (!kernels.bf16_dot->all_plain(halves, block_ * dim)) return;
        is_plain_[static_cast<std::size_t>(at / block_)] = 1;
        if ((forms & kColumns) != 0) {
            kernels.transpose_words({reinterpret_cast<const std::uint32_t*>(halves), dim / 2,
                                     block_, dim / 2, columns_.data() + at * dim / 2, block_});
        }
        if ((forms & kRowPairs) != 0)
            kernels.bf16_dot->pair_rows(halves, block_, dim, row_pairs_.data() + at * dim / 2);
    });
}

}  // namespace attncheck::impl
