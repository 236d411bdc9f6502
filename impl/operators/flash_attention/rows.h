#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_ROWS_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_ROWS_H

#include <cstdint>

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/shapes.h"

/// The channels of one (batch entry, head, position) between a tensor of any layout, strides and
/// element type and fp32. A layout is nothing but four strides.
namespace attncheck::impl {

/// fp32, fp16, bf16, and the two fp8 types (OCP OFP8: E5M2 has infinities, E4M3FN has none and one
/// NaN per sign), widened exactly.
float widen_element(std::int32_t dtype, const void* data, std::int64_t offset);

class RowView {
public:
    /// An absent tensor gives a view of dim 0.
    RowView(const attncheck_tensor& tensor, const FlashAxes& axes, std::int64_t dim);

    std::int64_t dim() const { return dim_; }
    /// `position` counts from the start of the packed tensor in TND, where `batch` is ignored.
    std::int64_t offset(std::int64_t batch, std::int64_t head, std::int64_t position) const {
        return batch * batch_stride_ + head * head_stride_ + position * position_stride_;
    }
    std::int32_t dtype() const { return dtype_; }
    /// Writes dim() elements of 16 bits as they are.
    void read_halves(std::int64_t offset, std::uint16_t* to) const;
    /// Writes dim() numbers.
    void read(std::int64_t offset, float* to, const AttentionKernels& kernels) const;
    /// Rounds once; reads up to 15 numbers behind the last one.
    void write_product(std::int64_t offset, const float* from, float factor,
                       const AttentionKernels& kernels) const;
    void write_quotient(std::int64_t offset, const float* from, float divisor,
                        const AttentionKernels& kernels) const;
    void write_zeros(std::int64_t offset) const;

private:
    /// Rounded in one go; a multiple of 16.
    static constexpr std::int64_t kMostAtOnce = 768;

    template <class Write>
    void for_blocks(const Write& write) const;
    void scatter(std::int64_t offset, const std::uint16_t* from, std::int64_t count) const;

    void* data_;
    std::int32_t dtype_;
    std::int64_t batch_stride_, head_stride_, position_stride_, channel_stride_, dim_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_ROWS_H
