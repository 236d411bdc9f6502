#include "impl/operators/selection/selected_key_sums.h"

#include <algorithm>

#include "impl/runtime/thread_pool.h"
#include "impl/arguments/token_heads.h"

namespace attncheck::impl {
namespace {

// Ends of `parts` parts of nearly equal work: products with a query's blocks, and its own row.
std::vector<std::int64_t> equal_parts(const KeySelection& selection, const Sequence& sequence,
                                      std::int64_t parts) {
    const auto work_of = [&](std::int64_t token) {
        return selection.most_seen_blocks(token - sequence.query_begin) + 1;
    };
    std::int64_t total = 0;
    for (std::int64_t t = sequence.query_begin; t < sequence.query_end; ++t) total += work_of(t);
    std::vector<std::int64_t> ends;
    std::int64_t done = 0;
    for (std::int64_t t = sequence.query_begin; t < sequence.query_end; ++t) {
        done += work_of(t);
        if (done * parts >= total * (std::ssize(ends) + 1)) ends.push_back(t + 1);
    }
    return ends;
}

}  // namespace

QuerySlices::QuerySlices(const KeySelection& selection, std::int64_t floats_per_key) {
    constexpr std::int64_t kMostSlices = 8, kLeastQueries = 256, kMostBytes = std::int64_t{1} << 29;
    const std::int64_t bytes = selection.num_kv_heads() * selection.num_keys() * floats_per_key *
                               static_cast<std::int64_t>(sizeof(float)),
                       most = std::clamp<std::int64_t>(
                           kMostBytes / std::max<std::int64_t>(bytes, 1), 1, kMostSlices);
    std::int64_t queries = kLeastQueries;  // of the last unit
    for (std::int64_t token = 0; token < selection.num_queries();) {
        const Sequence sequence = selection.sequence_of_query(token);
        const std::int64_t length = sequence.query_end - token,
                           parts = std::min(most, (length + kLeastQueries - 1) / kLeastQueries);
        num_slices_ = std::max(num_slices_, parts);
        std::int64_t index = 0;
        for (const std::int64_t end : equal_parts(selection, sequence, parts)) {
            if (queries >= kLeastQueries) {
                units_.push_back({slices_.size(), slices_.size()});
                queries = 0;
            }
            slices_.push_back({sequence, token, end, index++});
            units_.back().end = slices_.size();
            queries += end - token;
            token = end;
        }
    }
}

KeySums::KeySums(const KeySelection& selection, std::int64_t num_slices, std::int64_t head_dim,
                 std::int64_t value_dim, const AttentionKernels& kernels)
    : kernels_(kernels),
      num_slices_(num_slices),
      num_heads_(selection.num_kv_heads()),
      num_keys_(selection.num_keys()),
      block_(selection.block()),
      head_dim_(head_dim),
      value_dim_(value_dim),
      key_sums_(num_slices * num_heads_ * num_keys_ * head_dim),
      value_sums_(num_slices * num_heads_ * num_keys_ * value_dim),
      has_sums_(static_cast<std::size_t>(num_slices * num_heads_ * num_keys_ / block_)) {}

KeySums::Block KeySums::block(std::int64_t slice, std::int64_t kv_head, std::int64_t key_token) {
    const std::int64_t row = row_of(slice, kv_head, key_token);
    const Block block = at(row);
    if (has_sums(row)) return block;
    std::fill_n(block.key_sums, block_ * head_dim_, 0.0f);
    std::fill_n(block.value_sums, block_ * value_dim_, 0.0f);
    has_sums_[static_cast<std::size_t>(row / block_)] = 1;
    return block;
}

KeySums::Block KeySums::total(std::int64_t kv_head, std::int64_t key_token) const {
    Block total{nullptr, nullptr};
    for (std::int64_t slice = 0; slice < num_slices_; ++slice) {
        const std::int64_t row = row_of(slice, kv_head, key_token);
        if (!has_sums(row)) continue;
        const Block part = at(row);
        if (total.key_sums == nullptr) {
            total = part;
            continue;
        }
        kernels_.scale_and_add(total.key_sums, 1.0f, part.key_sums, block_ * head_dim_);
        kernels_.scale_and_add(total.value_sums, 1.0f, part.value_sums, block_ * value_dim_);
    }
    return total;
}

void KeySums::store(float scale, const attncheck_tensor& dk, const attncheck_tensor& dv) {
    const auto zero = [&](std::int64_t head, std::int64_t token, std::int64_t count) {
        fill_zero({token, count, head, 1, head_dim_}, output_rows(dk));
        fill_zero({token, count, head, 1, value_dim_}, output_rows(dv));
    };
    const std::int64_t num_blocks = num_keys_ / block_;
    parallel_for(num_heads_ * num_blocks, [&](std::int64_t i) {
        const std::int64_t head = i / num_blocks, token = i % num_blocks * block_;
        const Block sums = total(head, token);
        if (sums.key_sums == nullptr) return zero(head, token, block_);
        TokenHeadsWriter key_writer(dk, kernels_), value_writer(dv, kernels_);
        for (std::int64_t key = 0; key < block_; ++key) {
            key_writer.write_product(sums.key_sums + key * head_dim_, scale, token + key, head);
            value_writer.write_product(sums.value_sums + key * value_dim_, 1.0f, token + key, head);
        }
    });
    for (std::int64_t head = 0; head < num_heads_; ++head)
        zero(head, num_keys_, dk.shape[0] - num_keys_);
}

}  // namespace attncheck::impl
