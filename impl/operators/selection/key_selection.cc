#include "impl/operators/selection/key_selection.h"

#include <algorithm>

#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

std::int64_t index_of_token(const attncheck_int_array& ends, std::int64_t token) {
    return std::upper_bound(ends.values, ends.values + ends.size, token) - ends.values;
}

std::int64_t begin_of(const attncheck_int_array& ends, std::int64_t index) {
    return index == 0 ? 0 : ends.values[index - 1];
}

// visit(block of the pack) for every list entry of a kv head that is not in the future.
template <class Visit>
void for_each_listed(const KeySelection& selection, std::int64_t kv_head, const Visit& visit) {
    Sequence sequence;
    for (std::int64_t query = 0; query < selection.num_queries(); ++query) {
        if (query >= sequence.query_end) sequence = selection.sequence_of_query(query);
        if (!sequence.has_keys()) continue;
        const std::int64_t query_pos = query - sequence.query_begin,
                           first_block = sequence.key_begin / selection.block();
        for (std::int64_t i = 0; i < selection.count(); ++i) {
            const std::int64_t block = selection.listed_block(query, kv_head, i);
            if (selection.is_future(query_pos, block * selection.block())) continue;
            visit(first_block + block);
        }
    }
}

}  // namespace

KeySelection::KeySelection(const attncheck_tensor& topk_indices, const attncheck_tensor& atten_mask,
                           const attncheck_int_array& query_ends,
                           const attncheck_int_array& key_ends, std::int64_t sparse_mode,
                           std::int64_t block)
    : topk_(static_cast<const std::int32_t*>(topk_indices.data)),
      topk_strides_{topk_indices.strides[0], topk_indices.strides[1], topk_indices.strides[2]},
      query_ends_(query_ends),
      key_ends_(key_ends),
      num_kv_heads_(topk_indices.shape[1]),
      block_(block),
      count_(topk_indices.shape[2]),
      visibility_(atten_mask.data == nullptr ? Visibility::kAll
                  : sparse_mode == 2         ? Visibility::kCausal
                                             : Visibility::kMask),
      mask_(static_cast<const std::uint8_t*>(atten_mask.data)),
      mask_query_stride_(atten_mask.strides[0]),
      mask_key_stride_(atten_mask.strides[1]) {}

Sequence KeySelection::sequence(std::int64_t index) const {
    return {begin_of(query_ends_, index), query_ends_.values[index], begin_of(key_ends_, index),
            key_ends_.values[index]};
}

std::int64_t KeySelection::most_blocks() const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < key_ends_.size; ++i)
        most = std::max(most, key_ends_.values[i] - begin_of(key_ends_, i));
    return most / block_;
}

Sequence KeySelection::sequence_of_query(std::int64_t token) const {
    return sequence(index_of_token(query_ends_, token));
}

void KeySelection::visible_ranges(std::int64_t query_pos, std::int64_t key_pos, std::int64_t size,
                                  VisibleRanges& seen) const {
    seen.count = 0;
    switch (visibility_) {
        case Visibility::kAll:
            seen.add(0, size);
            return;
        case Visibility::kCausal: {
            const std::int64_t end = std::min(size, query_pos - key_pos + 1);
            if (end > 0) seen.add(0, end);
            return;
        }
        case Visibility::kMask:
            break;
    }
    const std::uint8_t* row = mask_ + query_pos * mask_query_stride_;
    for (std::int64_t i = 0; i < size; ++i) {
        if (row[(key_pos + i) * mask_key_stride_] != 0) continue;
        std::int64_t end = i + 1;
        while (end < size && row[(key_pos + end) * mask_key_stride_] == 0) ++end;
        seen.add(i, end);
        i = end;
    }
}

std::vector<std::uint8_t> listed_blocks(const KeySelection& selection) {
    const std::int64_t num_blocks = selection.num_blocks();
    std::vector<std::uint8_t> listed(
        static_cast<std::size_t>(selection.num_kv_heads() * num_blocks));
    parallel_for(selection.num_kv_heads(), [&](std::int64_t kv_head) {
        std::uint8_t* of_head = listed.data() + kv_head * num_blocks;
        for_each_listed(selection, kv_head, [&](std::int64_t block) { of_head[block] = 1; });
    });
    return listed;
}

}  // namespace attncheck::impl
