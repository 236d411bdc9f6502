#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_PLAN_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_PLAN_H

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "impl/kernels/bf16_dot_kernels.h"
#include "impl/kernels/half_formats.h"
#include "impl/kernels/nsa_compress_kernels.h"
#include "impl/arguments/strided_rows.h"

/// How both directions cut a problem into units: chunks along the tokens times groups of heads.
namespace attncheck::impl {

/// W transposed to [num_heads, block], for the kernels walk r with the head fixed: in fp32, or as
/// it is for products of pairs, of which neighbouring rows then are neighbours in memory.
class TransposedWeight {
public:
    TransposedWeight(const attncheck_tensor& weight, HalfFormat format, bool in_pairs)
        : in_pairs_(in_pairs),
          data_(weight.shape[0] * weight.shape[1] *
                static_cast<std::int64_t>(in_pairs ? sizeof(std::uint16_t) : sizeof(float))) {
        const std::int64_t block = weight.shape[0], num_heads = weight.shape[1];
        const auto* from = static_cast<const std::uint16_t*>(weight.data);
        auto* halves = reinterpret_cast<std::uint16_t*>(data_.data());
        auto* floats = reinterpret_cast<float*>(data_.data());
        for (std::int64_t head = 0; head < num_heads; ++head) {
            for (std::int64_t row = 0; row < block; ++row) {
                const std::uint16_t half = from[row * weight.strides[0] + head * weight.strides[1]];
                const std::int64_t to = head * block + row;
                if (in_pairs) {
                    halves[to] = half;
                } else {
                    floats[to] = widen(format, half);
                }
            }
        }
        // Where kernels of pairs are, so are those that look for plain numbers.
        plain_ = in_pairs && bf16_dot_kernels()->all_plain(halves, block * num_heads);
    }
    const float* floats() const {
        return in_pairs_ ? nullptr : reinterpret_cast<const float*>(data_.data());
    }
    const std::uint16_t* halves() const {
        return in_pairs_ ? reinterpret_cast<const std::uint16_t*>(data_.data()) : nullptr;
    }
    /// Whether the kernels that are not exact may multiply pairs by it.
    bool plain() const { return plain_; }

private:
    bool in_pairs_, plain_;
    AlignedBuffer<std::byte> data_;
};

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

/// The most tokens of a slab, a power of two, whose rows take no more than `bytes`; at least one.
inline std::int64_t tokens_fitting(std::int64_t bytes, std::int64_t row_elements) {
    std::int64_t tokens = kSlabTokens;
    while (tokens > 1 && 2 * tokens * row_elements > bytes) tokens /= 2;
    return tokens;
}

/// How lines of rows are asked for: once, 12 KiB ahead, if that is wanted and fits the first level
/// beside what is in use there; else twice, `twice` ahead.
struct RequestPlan {
    LineRequests requests;
    TokensAhead ahead;

    RequestPlan(LineRequests wanted, std::int64_t row_elements, std::int64_t unit,
                TokensAhead twice) {
        constexpr std::int64_t kBytes = 12 << 10, kMostBytes = 16 << 10;
        const TokensAhead once = tokens_ahead(kBytes, row_elements, unit);
        const bool fits = 2 * once.near * row_elements <= kMostBytes;
        requests = fits ? wanted : LineRequests::kTwice;
        ahead = requests == LineRequests::kOnce ? once : twice;
    }
};

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
