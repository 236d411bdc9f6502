#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_GRADIENT_PASS_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_GRADIENT_PASS_H

#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/operand.h"
#include "impl/operators/flash_attention/tile.h"
#include "impl/operators/flash_attention/tile_plan.h"

/// The gradient of dense attention, tile by tile (Dao 2023, FlashAttention-2, algorithm 2), for any
/// operator that has a plan.
namespace attncheck::impl {

/// Ropes, their gradients and `no_rope` may be views of dim 0.
struct GradientRows {
    RowView query, query_rope, key, key_rope, value, no_rope, output, output_grad;
    RowView query_grad, query_rope_grad, key_grad, key_rope_grad, value_grad;

    std::int64_t logit_dim() const { return query.dim() + query_rope.dim(); }
};

/// Numbers per row of queries, (batch entry, head, position) in that order.
class GradientQueryRows {
public:
    explicit GradientQueryRows(const TilePlan& plan);

    std::int64_t count() const { return count_; }
    std::int64_t at(std::int64_t b, std::int64_t head, std::int64_t position) const {
        return first_[static_cast<std::size_t>(b)] + head * plan_.sequence(b).query_len + position;
    }
    /// The given statistics and delta = <dO, O> of a tile of queries.
    void load(const GradientRows& of, const FlashUnits::Unit& unit,
              const AttentionKernels& kernels);

    std::vector<float> row_max, row_sum, delta;

private:
    const TilePlan& plan_;
    std::vector<std::int64_t> first_;
    std::int64_t count_ = 0;
};

/// P and dS of tiles.
class TileGradients {
public:
    TileGradients(const TilePlan& plan, std::int64_t max_rows, const AttentionKernels& kernels,
                  bool as_pairs);

    PairTile& pairs() { return pairs_; }
    TileWeights& probs() { return probs_; }
    TileWeights& score_grads() { return score_grads_; }
    /// Of the tile that pairs() has started, whose rows are those of `query` and `output_grad` from
    /// `skip` on, number `row` among all; exactly 0 where the pair is hidden. dS is that of the
    /// logits, before the slopes of a softcap.
    void fill(TileRows& query, TileRows& output_grad, std::int64_t skip, TileRows& key,
              TileRows& value, const GradientQueryRows& rows, std::int64_t row);
    /// After fill: dS becomes that of the products.
    void apply_slopes();

private:
    const TilePlan& plan_;
    PairTile pairs_;
    TileWeights probs_, score_grads_;
    AlignedBuffer<float> slopes_;
};

/// Loads the numbers of all rows.
void load_query_rows(const TilePlan& plan, const GradientRows& of, const AttentionKernels& kernels,
                     GradientQueryRows& rows);

/// Writes dq, dk and dv of all sequences.
void run_gradient(const TilePlan& plan, const GradientRows& of, const GradientQueryRows& rows,
                  const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_GRADIENT_PASS_H
