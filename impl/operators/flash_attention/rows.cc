#include "impl/operators/flash_attention/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "impl/kernels/half_formats.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kVectorHalves = 16;  // the row kernels take multiples of this

std::int64_t padded(std::int64_t dim) {
    return (dim + kVectorHalves - 1) / kVectorHalves * kVectorHalves;
}

int half_index(std::int32_t dtype) {
    return static_cast<int>(dtype == ATTNCHECK_FLOAT16 ? HalfFormat::kFp16 : HalfFormat::kBf16);
}

// 1 + 4 + 3 bits, bias 7; all ones is NaN, the exponent 15 is otherwise an ordinary one.
float widen_e4m3(std::uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float magnitude = 0.0f;
    if ((bits & 0x7f) == 0x7f) {
        magnitude = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
        magnitude = std::ldexp(static_cast<float>(mantissa), -9);
    } else {
        magnitude = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    }
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

float widen_element(std::int32_t dtype, const void* data, std::int64_t offset) {
    switch (dtype) {
        case ATTNCHECK_FLOAT32:
            return static_cast<const float*>(data)[offset];
        case ATTNCHECK_FLOAT16:
            return widen_fp16(static_cast<const std::uint16_t*>(data)[offset]);
        case ATTNCHECK_BFLOAT16:
            return widen_bf16(static_cast<const std::uint16_t*>(data)[offset]);
        case ATTNCHECK_FLOAT8_E5M2:  // the upper half of a binary16
            return widen_fp16(
                static_cast<std::uint16_t>(static_cast<const std::uint8_t*>(data)[offset] << 8));
        default:
            return widen_e4m3(static_cast<const std::uint8_t*>(data)[offset]);
    }
}

RowView::RowView(const attncheck_tensor& tensor, const FlashAxes& axes, std::int64_t dim)
    : data_(tensor.data),
      dtype_(tensor.dtype),
      batch_stride_(axes.batch < 0 ? 0 : tensor.strides[axes.batch]),
      head_stride_(axes.head < 0 ? dim * tensor.strides[axes.channel] : tensor.strides[axes.head]),
      position_stride_(tensor.strides[axes.position]),
      channel_stride_(tensor.strides[axes.channel]),
      dim_(tensor.data == nullptr ? 0 : dim) {}

void RowView::read(std::int64_t offset, float* to, const AttentionKernels& kernels) const {
    const bool contiguous = channel_stride_ == 1;
    if (dtype_ == ATTNCHECK_FLOAT32 && contiguous) {
        std::copy_n(static_cast<const float*>(data_) + offset, dim_, to);
        return;
    }
    if (!contiguous || (dtype_ != ATTNCHECK_FLOAT16 && dtype_ != ATTNCHECK_BFLOAT16)) {
        for (std::int64_t c = 0; c < dim_; ++c) {
            to[c] = widen_element(dtype_, data_, offset + c * channel_stride_);
        }
        return;
    }
    const std::uint16_t* row = static_cast<const std::uint16_t*>(data_) + offset;
    const std::int64_t whole = dim_ / kVectorHalves * kVectorHalves;
    kernels.widen_row[half_index(dtype_)](row, to, whole);
    for (std::int64_t c = whole; c < dim_; ++c) to[c] = widen_element(dtype_, row, c);
}

void RowView::read_halves(std::int64_t offset, std::uint16_t* to) const {
    const std::uint16_t* row = static_cast<const std::uint16_t*>(data_) + offset;
    if (channel_stride_ == 1) {
        std::copy_n(row, dim_, to);
        return;
    }
    for (std::int64_t c = 0; c < dim_; ++c) to[c] = row[c * channel_stride_];
}

void RowView::scatter(std::int64_t offset, const std::uint16_t* from, std::int64_t count) const {
    std::uint16_t* to = static_cast<std::uint16_t*>(data_) + offset;
    if (channel_stride_ == 1) {
        std::copy_n(from, count, to);
        return;
    }
    for (std::int64_t c = 0; c < count; ++c) to[c * channel_stride_] = from[c];
}

// Channels [begin, begin + count) of at most kMostAtOnce.
template <class Write>
void RowView::for_blocks(const Write& write) const {
    for (std::int64_t begin = 0; begin < dim_; begin += kMostAtOnce)
        write(begin, std::min(kMostAtOnce, dim_ - begin));
}

void RowView::write_product(std::int64_t offset, const float* from, float factor,
                            const AttentionKernels& kernels) const {
    if (dtype_ == ATTNCHECK_FLOAT32) {
        float* to = static_cast<float*>(data_) + offset;
        for (std::int64_t c = 0; c < dim_; ++c) to[c * channel_stride_] = from[c] * factor;
        return;
    }
    for_blocks([&](std::int64_t begin, std::int64_t count) {
        std::uint16_t rounded[kMostAtOnce];
        kernels.store_product[half_index(dtype_)](from + begin, factor, rounded, padded(count));
        scatter(offset + begin * channel_stride_, rounded, count);
    });
}

void RowView::write_quotient(std::int64_t offset, const float* from, float divisor,
                             const AttentionKernels& kernels) const {
    if (dtype_ == ATTNCHECK_FLOAT32) {
        float* to = static_cast<float*>(data_) + offset;
        for (std::int64_t c = 0; c < dim_; ++c) to[c * channel_stride_] = from[c] / divisor;
        return;
    }
    for_blocks([&](std::int64_t begin, std::int64_t count) {
        std::uint16_t rounded[kMostAtOnce];
        kernels.store_quotient[half_index(dtype_)](from + begin, divisor, rounded, padded(count));
        scatter(offset + begin * channel_stride_, rounded, count);
    });
}

void RowView::write_zeros(std::int64_t offset) const {
    if (dtype_ == ATTNCHECK_FLOAT32) {
        float* to = static_cast<float*>(data_) + offset;
        for (std::int64_t c = 0; c < dim_; ++c) to[c * channel_stride_] = 0.0f;
        return;
    }
    constexpr std::uint16_t kZeros[kMostAtOnce] = {};
    for_blocks([&](std::int64_t begin, std::int64_t count) {
        scatter(offset + begin * channel_stride_, kZeros, count);
    });
}

}  // namespace attncheck::impl
