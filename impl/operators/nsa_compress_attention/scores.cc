#include "impl/operators/nsa_compress_attention/scores.h"

#include <algorithm>
#include <cassert>

namespace attncheck::impl {

void block_scores(const float* probs, std::int64_t num_probs, const SelectionGeometry& geometry,
                  float* scores) {
    const std::int64_t step = geometry.strides_per_selected,
                       overlap = geometry.strides_per_compressed, window = step + overlap - 1,
                       num_blocks = geometry.num_selected(num_probs);
    double times[2 * kMaxStridesPerBlock];
    assert(step <= kMaxStridesPerBlock && overlap <= kMaxStridesPerBlock);
    for (std::int64_t i = 0; i < window; ++i)
        times[i] = static_cast<double>(std::min({i + 1, overlap, step, window - i}));
    for (std::int64_t j = 0; j < num_blocks; ++j) {
        const std::int64_t last = step * (j + 1);
        // 0 <= last - i < num_probs
        const std::int64_t begin = std::max<std::int64_t>(0, last - num_probs + 1),
                           end = std::min(window, last + 1);
        double sum = 0.0;
        for (std::int64_t i = begin; i < end; ++i)
            sum += times[i] * static_cast<double>(probs[last - i]);
        scores[j] = static_cast<float>(sum);
    }
}

void top_blocks(const float* scores, std::int64_t num_scores, std::int64_t count,
                std::int32_t* blocks) {
    assert(1 <= count && count <= num_scores && count <= kMaxListedBlocks);
    float ranks[kMaxListedBlocks];
    std::int64_t size = 0;
    float worst = 0.0f;  // rank of the last entry, once the list is full
    for (std::int64_t block = 0; block < num_scores; ++block) {
        // Scores are sums of probabilities, hence at least 0; NaN fails the comparison.
        const float own = scores[block] >= 0.0f ? scores[block] : -1.0f;
        if (size == count && own <= worst) continue;
        // Insertion from behind: a block passes only smaller scores, so ties keep their order.
        std::int64_t at = size < count ? size++ : count - 1;
        for (; at > 0 && own > ranks[at - 1]; --at) {
            ranks[at] = ranks[at - 1];
            blocks[at] = blocks[at - 1];
        }
        ranks[at] = own;
        blocks[at] = static_cast<std::int32_t>(block);
        worst = ranks[size - 1];
    }
}

}  // namespace attncheck::impl
