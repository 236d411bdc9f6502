#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_PLAN_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_PLAN_H

#include <algorithm>
#include <cstdint>

#include "impl/bf16_dot_kernels.h"
#include "impl/half_formats.h"
#include "impl/nsa_compress_kernels.h"
#include "impl/strided_rows.h"

/// How both directions cut a problem into units: chunks along the tokens times groups of heads.
namespace attncheck::impl {

/// W as fp32, transposed to [num_heads, block]: the kernels walk r with the head fixed.
inline AlignedBuffer<float> widen_weight(const attncheck_tensor& weight, HalfFormat format) {
    const std::int64_t block = weight.shape[0], num_heads = weight.shape[1];
    const auto* data = static_cast<const std::uint16_t*>(weight.data);
    AlignedBuffer<float> widened(block * num_heads);
    for (std::int64_t head = 0; head < num_heads; ++head) {
        for (std::int64_t row = 0; row < block; ++row) {
            widened.data()[head * block + row] =
                widen(format, data[row * weight.strides[0] + head * weight.strides[1]]);
        }
    }
    return widened;
}

/// W as it is, transposed likewise; pairs of neighbouring rows then are neighbours in memory.
inline AlignedBuffer<std::uint16_t> transpose_weight(const attncheck_tensor& weight) {
    const std::int64_t block = weight.shape[0], num_heads = weight.shape[1];
    const auto* data = static_cast<const std::uint16_t*>(weight.data);
    AlignedBuffer<std::uint16_t> transposed(block * num_heads);
    for (std::int64_t head = 0; head < num_heads; ++head) {
        for (std::int64_t row = 0; row < block; ++row) {
            transposed.data()[head * block + row] =
                data[row * weight.strides[0] + head * weight.strides[1]];
        }
    }
    return transposed;
}

/// Whether pair kernels may multiply by the transposed W. Where they are there, so are those that
/// look for plain numbers.
inline bool plain_weight(const attncheck_tensor& weight,
                         const AlignedBuffer<std::uint16_t>& transposed) {
    return bf16_dot_kernels()->all_plain(transposed.data(), weight.shape[0] * weight.shape[1]);
}

/// Heads are cut into groups whose scratch stays in the first levels of cache.
struct HeadGroups {
    std::int64_t num_heads, heads_per_group;

    static HeadGroups fitting(std::int64_t num_heads, std::int64_t scratch_bytes_per_head) {
        // Half of a 64 KiB share of the second level: the other half is for the rows that stream
        // through.
        constexpr std::int64_t kScratchBytes = 32 << 10;
        return {num_heads,
                std::clamp<std::int64_t>(kScratchBytes / scratch_bytes_per_head, 1, num_heads)};
    }
    std::int64_t count() const { return (num_heads + heads_per_group - 1) / heads_per_group; }
    std::int64_t begin(std::int64_t group) const { return group * heads_per_group; }
    std::int64_t size(std::int64_t group) const {
        return std::min(heads_per_group, num_heads - begin(group));
    }
};

/// Tokens between a request for a line and its use, so that requests are `bytes` and twice as many
/// ahead; a multiple of `unit` tokens.
inline TokensAhead tokens_ahead(std::int64_t bytes, std::int64_t row_elements, std::int64_t unit) {
    const std::int64_t unit_bytes = 2 * unit * row_elements;
    const std::int64_t near = (bytes + unit_bytes - 1) / unit_bytes * unit;
    return {2 * near, near};
}

/// How far ahead of its use a page of a large tensor is touched: beyond any line asked for.
inline std::int64_t tokens_to_touch_ahead(std::int64_t row_elements) {
    return tokens_ahead(64 << 10, row_elements, kSlabTokens).near;
}

/// A result larger than this would push everything else out of the cache and come back from memory
/// anyway; storing past the cache also saves reading each line before it is overwritten.
inline constexpr std::int64_t kBypassBytes = std::int64_t{4} << 20;

/// Whether every head of every row of a contiguous head dimension begins at a line of memory.
inline bool rows_at_lines(const attncheck_tensor& tensor) {
    const auto aligned = [](std::int64_t stride) { return stride % kLineElements == 0; };
    return reinterpret_cast<std::uintptr_t>(tensor.data) % kLineBytes == 0 &&
           tensor.strides[2] == 1 && aligned(tensor.strides[0]) && aligned(tensor.strides[1]);
}

/// begin of chunk i when `total` things are cut into `num_chunks` nearly equal parts; total *
/// num_chunks may not fit.
inline std::int64_t chunk_begin(std::int64_t total, std::int64_t num_chunks, std::int64_t chunk) {
    return total / num_chunks * chunk + std::min(total % num_chunks, chunk);
}

/// Elements of X up to which a call stays on its thread: about 20 us of work at 25 GB/s, taken as
/// the price of waking another. An estimate, not a measured crossover.
inline constexpr std::int64_t kSerialElements = std::int64_t{1} << 18;

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_PLAN_H
