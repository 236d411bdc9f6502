#include "impl/operators/nsa_compress_attention/plan.h"

#include <algorithm>

#include "impl/arguments/strided_rows.h"

namespace attncheck::impl {
namespace {

void write_copies(const attncheck_tensor& statistic, std::int64_t row, std::int64_t head,
                  float value) {
    float* to = static_cast<float*>(statistic.data) + row * statistic.strides[0] +
                head * statistic.strides[1];
    for (std::int64_t copy = 0; copy < statistic.shape[2]; ++copy)
        to[copy * statistic.strides[2]] = value;
}

const std::uint8_t* mask_row(const attncheck_tensor& mask, std::int64_t query_pos) {
    return static_cast<const std::uint8_t*>(mask.data) + query_pos * mask.strides[0];
}

}  // namespace

CompressAttentionPlan::CompressAttentionPlan(const attncheck_nsa_compress_attention_args& args)
    : args_(args),
      group_size_(args.query.shape[1] / args.key.shape[1]),
      queries_per_unit_(std::max<std::int64_t>(1, kCompressTileRows / group_size_)),
      geometry_(args.compress_block_size, args.compress_stride, args.select_block_size) {
    unit_ends_.reserve(static_cast<std::size_t>(args.actual_seq_q_len.size));
    std::int64_t end = 0;
    for (std::int64_t b = 0; b < args.actual_seq_q_len.size; ++b) {
        const Sequence s = sequence(b);
        const std::int64_t len = s.query_end - s.query_begin;
        end +=
            (len / queries_per_unit_ + (len % queries_per_unit_ != 0 ? 1 : 0)) * args.key.shape[1];
        unit_ends_.push_back(end);
    }
}

Sequence CompressAttentionPlan::sequence(std::int64_t index) const {
    const std::int64_t *query_ends = args_.actual_seq_q_len.values,
                       *key_ends = args_.actual_cmp_seq_kv_len.values;
    if (index == 0) return {0, query_ends[0], 0, key_ends[0]};
    return {query_ends[index - 1], query_ends[index], key_ends[index - 1], key_ends[index]};
}

CompressedQueries CompressAttentionPlan::unit(std::int64_t index) const {
    const auto b = std::upper_bound(unit_ends_.begin(), unit_ends_.end(), index);
    const std::int64_t num_heads = args_.key.shape[1],
                       own = b == unit_ends_.begin() ? index : index - *(b - 1);
    CompressedQueries made{sequence(b - unit_ends_.begin()), own % num_heads,
                           own / num_heads * queries_per_unit_, 0};
    made.num_queries = std::min(
        queries_per_unit_, made.sequence.query_end - made.sequence.query_begin - made.query_begin);
    return made;
}

std::int64_t CompressAttentionPlan::num_tokens_in_sequences() const {
    return args_.actual_seq_q_len.values[args_.actual_seq_q_len.size - 1];
}

void CompressAttentionPlan::mark_seen(std::int64_t query_pos, std::int64_t num_keys,
                                      std::uint8_t* seen) const {
    const std::uint8_t* hidden = mask_row(args_.atten_mask, query_pos);
    const std::int64_t stride = args_.atten_mask.strides[1];
    if (stride == 1) {
        for (std::int64_t key = 0; key < num_keys; ++key) seen[key] = hidden[key] == 0 ? 1 : 0;
        return;
    }
    for (std::int64_t key = 0; key < num_keys; ++key) seen[key] = hidden[key * stride] == 0 ? 1 : 0;
}

void CompressAttentionPlan::force_blocks(std::int64_t query_pos, std::int64_t num_blocks,
                                         float* scores) const {
    if (args_.topk_mask.data == nullptr) return;
    const std::uint8_t* forced = mask_row(args_.topk_mask, query_pos);
    const std::int64_t stride = args_.topk_mask.strides[1];
    for (std::int64_t block = 0; block < num_blocks; ++block)
        if (forced[block * stride] != 0) scores[block] = kForcedScore;
}

void CompressAttentionPlan::write_statistics(const Sequence& sequence, std::int64_t query_pos,
                                             std::int64_t head, float row_max,
                                             float row_sum) const {
    // A block [N1, S_q] per sequence, laid over the rows of [T1, N1].
    const std::int64_t num_heads = args_.query.shape[1],
                       at = sequence.query_begin * num_heads +
                            head * (sequence.query_end - sequence.query_begin) + query_pos;
    write_copies(args_.softmax_max, at / num_heads, at % num_heads, row_max);
    write_copies(args_.softmax_sum, at / num_heads, at % num_heads, row_sum);
}

void CompressAttentionPlan::write_zeros_beyond(std::int64_t token) const {
    const std::int64_t num_heads = args_.query.shape[1], num_kv_heads = args_.key.shape[1];
    fill_zero({token, 1, 0, num_heads, value_dim()}, output_rows(args_.attention_out));
    for (std::int64_t head = 0; head < num_heads; ++head) {
        write_copies(args_.softmax_max, token, head, 0.0f);
        write_copies(args_.softmax_sum, token, head, 0.0f);
    }
    for (std::int64_t head = 0; head < num_kv_heads; ++head) {
        for (std::int64_t i = 0; i < args_.topk_indices.shape[2]; ++i)
            topk_row(token, head)[i * args_.topk_indices.strides[2]] = 0;
    }
}

}  // namespace attncheck::impl
