#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_PLAN_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_PLAN_H

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/operators/selection/key_selection.h"
#include "impl/operators/nsa_compress_attention/scores.h"

/// Where a validated call of NsaCompressAttention keeps things: sequences, masks, statistics, and
/// how the work is cut.
namespace attncheck::impl {

/// Some queries of one sequence and kv head. Positions count from the start of the sequence, whose
/// keys are compressed blocks.
struct CompressedQueries {
    Sequence sequence;
    std::int64_t kv_head, query_begin, num_queries;

    std::int64_t num_keys() const { return sequence.key_end - sequence.key_begin; }
    std::int64_t token(std::int64_t query) const {
        return sequence.query_begin + query_begin + query;
    }
};

class CompressAttentionPlan {
public:
    explicit CompressAttentionPlan(const attncheck_nsa_compress_attention_args& args);

    const attncheck_nsa_compress_attention_args& args() const { return args_; }
    std::int64_t group_size() const { return group_size_; }
    std::int64_t head_dim() const { return args_.query.shape[2]; }
    std::int64_t value_dim() const { return args_.value.shape[2]; }
    float scale() const { return static_cast<float>(args_.scale_value); }
    const SelectionGeometry& geometry() const { return geometry_; }

    std::int64_t num_units() const { return unit_ends_.empty() ? 0 : unit_ends_.back(); }
    CompressedQueries unit(std::int64_t index) const;
    std::int64_t num_tokens_in_sequences() const;

    bool has_atten_mask() const { return args_.atten_mask.data != nullptr; }
    /// 1 for a visible key, 0 for a hidden one; needs a mask. Both masks have rows by position in
    /// the sequence and serve all sequences and heads.
    void mark_seen(std::int64_t query_pos, std::int64_t num_keys, std::uint8_t* seen) const;
    void force_blocks(std::int64_t query_pos, std::int64_t num_blocks, float* scores) const;

    /// The 8 copies of both statistics.
    void write_statistics(const Sequence& sequence, std::int64_t query_pos, std::int64_t head,
                          float row_max, float row_sum) const;
    /// 0 in every output of a token that belongs to no sequence.
    void write_zeros_beyond(std::int64_t token) const;
    std::int32_t* topk_row(std::int64_t token, std::int64_t kv_head) const {
        const attncheck_tensor& topk = args_.topk_indices;
        return static_cast<std::int32_t*>(topk.data) + token * topk.strides[0] +
               kv_head * topk.strides[1];
    }

private:
    Sequence sequence(std::int64_t index) const;

    const attncheck_nsa_compress_attention_args& args_;
    std::int64_t group_size_, queries_per_unit_;
    SelectionGeometry geometry_;
    std::vector<std::int64_t> unit_ends_;  // units up to and with each sequence
};

/// Rows of a tile: 128 share what packing a tile of keys costs. A larger group is one tile.
inline constexpr std::int64_t kCompressTileRows = 128;

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_PLAN_H
