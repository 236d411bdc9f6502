#ifndef ATTNCHECK_IMPL_SELECTED_KEY_SUMS_H
#define ATTNCHECK_IMPL_SELECTED_KEY_SUMS_H

#include <cstdint>
#include <iterator>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/selection/key_selection.h"
#include "impl/arguments/strided_rows.h"

/// Sums over the queries of selected attention: every slice of the queries of a sequence has its
/// own, so that nothing is locked, and they are added up in the order of the slices, so that bits
/// do not depend on the number of threads.
namespace attncheck::impl {

/// How the queries of a sequence are cut: one slice for 256 queries, at most 8, fewer where the
/// sums of all slices would take more than 2^29 bytes (those of one slice may). Slices of a
/// sequence are of nearly equal work: under the causal mask the first queries have fewer blocks to
/// see. What lists hold does not count, so a sequence is cut alike in any company.
class QuerySlices {
public:
    struct Slice {
        Sequence sequence;
        std::int64_t begin, end;  ///< tokens
        std::int64_t index;       ///< in the sequence
    };

    /// A slice has `floats_per_key` numbers per key and kv head.
    QuerySlices(const KeySelection& selection, std::int64_t floats_per_key);

    /// Slices per sequence at most.
    std::int64_t num_slices() const { return num_slices_; }
    /// A unit of work is a slice, or neighbouring slices of few queries.
    std::int64_t num_units() const { return std::ssize(units_); }
    template <class Visit>
    void for_each_slice(std::int64_t unit, const Visit& visit) const {
        const Unit& of = units_[static_cast<std::size_t>(unit)];
        for (std::size_t i = of.begin; i < of.end; ++i) visit(slices_[i]);
    }

private:
    struct Unit {
        std::size_t begin, end;
    };

    std::int64_t num_slices_ = 1;
    std::vector<Slice> slices_;
    std::vector<Unit> units_;
};

/// dk, before the scale, and dv.
///
/// Memory  fp32 [slices, kv heads, keys, D] and [.., Dv], touched for blocks only that queries of a
///         slice list.
class KeySums {
public:
    KeySums(const KeySelection& selection, std::int64_t num_slices, std::int64_t head_dim,
            std::int64_t value_dim, const AttentionKernels& kernels);

    struct Block {
        float* key_sums;    ///< [block, D]
        float* value_sums;  ///< [block, Dv]
    };
    /// Zeros when first asked for. Slices are for different threads, and blocks of different
    /// sequences are.
    Block block(std::int64_t slice, std::int64_t kv_head, std::int64_t key_token);

    /// Adds up the slices and writes the gradients of all keys, of tokens beyond the last sequence
    /// too; +0 for what nobody sees, for the scale is finite.
    void store(float scale, const attncheck_tensor& dk, const attncheck_tensor& dv);

private:
    std::int64_t row_of(std::int64_t slice, std::int64_t kv_head, std::int64_t key_token) const {
        return (slice * num_heads_ + kv_head) * num_keys_ + key_token;
    }
    bool has_sums(std::int64_t row) const {
        return has_sums_[static_cast<std::size_t>(row / block_)] != 0;
    }
    Block at(std::int64_t row) const {
        return {key_sums_.data() + row * head_dim_, value_sums_.data() + row * value_dim_};
    }
    // In the first slice that has any; nulls if none has.
    Block total(std::int64_t kv_head, std::int64_t key_token) const;

    const AttentionKernels& kernels_;
    std::int64_t num_slices_, num_heads_, num_keys_, block_, head_dim_, value_dim_;
    AlignedBuffer<float> key_sums_, value_sums_;
    std::vector<std::uint8_t> has_sums_;  // [slices, kv heads, blocks]
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SELECTED_KEY_SUMS_H
