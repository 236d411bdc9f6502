#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_SCORES_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_SCORES_H

#include <cstdint>
#include <limits>

/// From probabilities of compressed blocks to a list of selection blocks, for one row.
namespace attncheck::impl {

/// 128 / 16, the most that the documented block sizes allow.
inline constexpr std::int64_t kMaxStridesPerBlock = 8;

/// The most blocks that a list may have (nsa.md 6.8).
inline constexpr std::int64_t kMaxListedBlocks = 32;

/// How selection blocks of l' tokens lie over compressed blocks of l tokens, d apart.
struct SelectionGeometry {
    std::int64_t strides_per_selected;    ///< isM = l' / d
    std::int64_t strides_per_compressed;  ///< isN = floor(l / d)

    SelectionGeometry(std::int64_t compress_block, std::int64_t compress_stride,
                      std::int64_t select_block)
        : strides_per_selected(select_block / compress_stride),
          strides_per_compressed(compress_block / compress_stride) {}

    /// Candidates of a sequence with `num_compressed` blocks: ceil(Cmp / isM).
    std::int64_t num_selected(std::int64_t num_compressed) const {
        return num_compressed / strides_per_selected +
               (num_compressed % strides_per_selected != 0 ? 1 : 0);
    }
};

/// Ranks before every sum of probabilities.
inline constexpr float kForcedScore = std::numeric_limits<float>::infinity();

/// scores[j] = sum_{m < isM} sum_{n < isN} probs[isM * (j + 1) - m - n],
///
/// with 0 for a prob that does not exist (nsa.md 6.4, which shifts the window by one compressed
/// block against the overlap in tokens). Grouped by i = m + n, which occurs
/// min(i + 1, isN, isM, isM + isN - 1 - i) times. Summed in binary64, where at most 64 numbers of
/// binary32 that are not far apart have an exact sum: blocks that see equal probs as often tie,
/// wherever in their windows those stand.
///
/// Shapes  probs [num_probs] -> scores [geometry.num_selected(num_probs)].
void block_scores(const float* probs, std::int64_t num_probs, const SelectionGeometry& geometry,
                  float* scores);

/// The `count` blocks with the largest scores, largest first; equal scores: smaller index first;
/// NaN after all numbers. Expects 1 <= count <= num_scores and count <= kMaxListedBlocks.
void top_blocks(const float* scores, std::int64_t num_scores, std::int64_t count,
                std::int32_t* blocks);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_SCORES_H
