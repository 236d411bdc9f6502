#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/operators/flash_attention/shapes.h"
#include "impl/operators/flash_attention/tile_plan.h"

/// A validated call of FlashAttentionScore or its gradient in canonical form.
namespace attncheck::impl {

class FlashPlan final : public TilePlan {
public:
    explicit FlashPlan(const FlashCall& call);

    const FlashCall& call() const { return call_; }
    std::int64_t rope_dim() const { return call_.has_rope() ? call_.query_rope->shape[2] : 0; }

    FlashSequence sequence(std::int64_t b) const override {
        return flash_sequence(call_, extents(), b);
    }
    VisibleBand band(std::int64_t b) const override;
    bool reads_pairs() const override { return reads_mask_; }
    /// A bias may come before the scale.
    float logit_factor() const override { return changes_products() ? 1.0f : scale(); }
    bool changes_products() const override { return bias_form_ != BiasForm::kNone; }
    /// Scale and bias (flash_attention.md 3.1). Outside the band there may be no bias.
    void finish_products(const FlashTile& tile, float* products, float* slopes) const override;
    bool has_dropout() const override { return call_.has_dropout(); }
    float keep_factor() const override { return 1.0f / static_cast<float>(call_.keep_prob); }
    void mark_kept(const FlashTile& tile, std::uint8_t* kept) const override;
    /// Copy 0 of each.
    RowStatistics statistics(std::int64_t b, std::int64_t head, std::int64_t i) const override;
    /// All 8 copies.
    void write_statistics(std::int64_t b, std::int64_t head, std::int64_t i,
                          const RowStatistics& of) const override;
    /// Rows of TND beyond the last sequence.
    void write_statistic_beyond(const attncheck_tensor& statistic, std::int64_t row,
                                std::int64_t head, float value) const;

protected:
    void hide_pairs(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                    std::uint8_t* seen) const override;

private:
    void write_statistic(const attncheck_tensor& statistic, std::int64_t b, std::int64_t head,
                         std::int64_t i, float value) const;
    std::int64_t statistic_offset(const attncheck_tensor& statistic, std::int64_t b,
                                  std::int64_t head, std::int64_t i) const;
    std::int64_t prior_pairs(std::int64_t b) const;
    void load_bias(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                   float* to) const;
    void load_slopes(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                     float* to) const;
    void load_packed_compressed(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                                std::int64_t end, float* to) const;

    FlashCall call_;
    FlashLengths lengths_;
    BiasForm bias_form_;
    MaskForm mask_form_;
    bool reads_mask_, statistics_by_head_;
    std::int64_t band_entry_;
    double start_distance_;                  // kvStart - qStart
    std::vector<std::int64_t> prior_pairs_;  // of TND: N1 * S1 * S2 summed over earlier sequences
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_PLAN_H
