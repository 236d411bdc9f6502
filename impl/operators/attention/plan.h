#ifndef ATTNCHECK_IMPL_ATTENTION_PLAN_H
#define ATTNCHECK_IMPL_ATTENTION_PLAN_H

#include <cmath>
#include <cstdint>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/attention/call.h"
#include "impl/operators/flash_attention/tile_plan.h"

/// A validated call of Attention or its gradient in canonical form.
namespace attncheck::impl {

class AttentionPlan final : public TilePlan {
public:
    AttentionPlan(const AttentionCall& call, const AttentionKernels& kernels);

    const AttentionCall& call() const { return call_; }
    bool has_keys() const { return extents().batch > 0 && extents().key_len > 0; }

    FlashSequence sequence(std::int64_t b) const override;
    VisibleBand band(std::int64_t b) const override;
    bool reads_pairs() const override { return call_.has_bias() || call_.has_mask(); }
    /// With a softcap the products are divided at once, unless that leaves the middle of the range.
    float logit_factor() const override { return divides_products() ? scale() / softcap_ : scale(); }
    bool changes_products() const override { return call_.has_bias() || softcap_ > 0; }
    void finish_products(const FlashTile& tile, float* products, float* slopes) const override;
    bool has_slopes() const override { return softcap_ > 0; }
    float sink(std::int64_t head) const override;
    /// (LSE, 1) as given, or what the last forward has kept.
    RowStatistics statistics(std::int64_t b, std::int64_t head, std::int64_t i) const override;
    /// The LSE, if there is a tensor for it; in a gradient the pair is kept.
    void write_statistics(std::int64_t b, std::int64_t head, std::int64_t i,
                          const RowStatistics& of) const override;

    /// Where an element of a tensor like the bias lies.
    static std::int64_t pair_offset(const attncheck_tensor& tensor, std::int64_t b,
                                    std::int64_t head, std::int64_t i, std::int64_t j);

protected:
    void hide_pairs(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                    std::uint8_t* seen) const override;

private:
    std::int64_t statistic_offset(const attncheck_tensor& lse, std::int64_t b, std::int64_t head,
                                  std::int64_t i) const;
    std::size_t kept_place(std::int64_t b, std::int64_t head, std::int64_t i) const;
    bool divides_products() const {
        const float factor = std::fabs(scale() / softcap_);
        return softcap_ > 0 && factor > 0x1p-40f && factor < 0x1p40f;
    }
    /// Biases of query i and keys [begin, end) of the tile.
    void load_bias(const FlashTile& tile, std::int64_t i, std::int64_t begin, std::int64_t end,
                   float* to) const;

    AttentionCall call_;
    const AttentionKernels& kernels_;
    float softcap_;
    mutable std::vector<RowStatistics> kept_;  // of a gradient without LSE: each row writes its own
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_PLAN_H
