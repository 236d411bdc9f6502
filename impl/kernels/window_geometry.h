#ifndef ATTNCHECK_IMPL_WINDOW_GEOMETRY_H
#define ATTNCHECK_IMPL_WINDOW_GEOMETRY_H

#include <cstdint>

/// Which compression windows a token belongs to. Positions count tokens from the start of their
/// sequence.
///
/// Window j of a sequence of `length` tokens covers positions [j * stride, j * stride + block).
namespace attncheck::impl {

// Documented limits (contract.md, decision 5).
inline constexpr std::int64_t kTokenUnit = 16;  // block, stride and D are multiples of it
inline constexpr std::int64_t kMaxBlock = 128;
inline constexpr std::int64_t kMaxHeads = 128;
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr int kMaxOpenWindows = 8;  // ceil(kMaxBlock / smallest stride)

/// Tokens handled by one micro-kernel call. Windows begin and end on multiples of 16, so the set of
/// windows that contain a token is the same for all tokens of a slab, whatever block and stride
/// are.
inline constexpr std::int64_t kSlabTokens = kTokenUnit;

struct WindowGeometry {
    std::int64_t block, stride;  // tokens, both positive

    std::int64_t num_windows(std::int64_t length) const {
        return length < block ? 0 : (length - block) / stride + 1;
    }
    /// Upper bound of the number of windows that contain one token.
    int max_open() const { return static_cast<int>((block + stride - 1) / stride); }
    /// First and last window, of an endless sequence, that contain the slab at `slab_pos` (a
    /// multiple of 16).
    std::int64_t first_open(std::int64_t slab_pos) const {
        const std::int64_t overhang = slab_pos + kSlabTokens - block;
        return overhang <= 0 ? 0 : (overhang + stride - 1) / stride;
    }
    std::int64_t last_open(std::int64_t slab_pos) const { return slab_pos / stride; }
};

/// Walks the sequences of a pack in order, without a table: memory does not grow with their number.
struct SequenceCursor {
    const std::int64_t* cumulative;  // [num_sequences], validated: non-negative, non-decreasing
    std::int64_t num_sequences;
    WindowGeometry geometry;
    std::int64_t index = 0;
    std::int64_t token_begin = 0;   // first packed token of the current sequence
    std::int64_t window_begin = 0;  // first compressed row of the current sequence

    bool done() const { return index >= num_sequences; }
    std::int64_t length() const { return cumulative[index] - token_begin; }
    std::int64_t num_windows() const { return geometry.num_windows(length()); }
    void next() {
        window_begin += num_windows();
        token_begin = cumulative[index++];
    }
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_WINDOW_GEOMETRY_H
