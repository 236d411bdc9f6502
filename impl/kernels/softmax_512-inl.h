// Softmax of weights that are rounded to bf16, in registers of 512 bits. Included where
// immintrin.h, bf16_dot_kernels.h and SoftmaxTile are known and AVX-512 (F, BW, VL, DQ, BF16) is
// the target, once per such place.

#include "impl/kernels/row_vectors_512-inl.h"
#include "impl/kernels/softmax_rows-inl.h"

inline __mmask16 not_plain_weights(__m512i bits) {
    constexpr unsigned kLimit = (127u + 20u) << 24;
    return _mm512_cmpge_epu32_mask(_mm512_slli_epi32(bits, 1),
                                   _mm512_set1_epi32(static_cast<int>(kLimit)));
}

// 16 scaled weights, 0 in place of those that are not plain, which are noted in `lost`.
inline __m512 plain_weights(const float* from, unsigned& lost) {
    const __m512 weights = _mm512_loadu_ps(from);
    const __mmask16 outside = not_plain_weights(_mm512_castps_si512(weights));
    lost |= outside;
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~outside), weights,
                               _mm512_set1_ps(kWeightScale));
}

// A row of narrow_rows.
inline void narrow_row(const float* from, std::int64_t cols, std::uint16_t* to, unsigned& lost) {
    constexpr std::int64_t kHalf = 16;
    for (std::int64_t c = 0; c < cols; c += 2 * kHalf) {
        const __m512 low = plain_weights(from + c, lost),
                     high = c + kHalf < cols ? plain_weights(from + c + kHalf, lost)
                                             : _mm512_setzero_ps();
        _mm512_storeu_si512(to + c, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

// Weights are at most 1 unless their row has NaN, and then its sum is NaN. The factor is hardly
// ever another one than 1.
template <bool kHasFactor>
struct SoftmaxVectors {
    const SoftmaxTile& tile;
    std::uint16_t* to;
    unsigned& lost;

    inline __attribute__((always_inline)) float max_of_row(const float* row,
                                                           std::int64_t cols) const {
        return max_of_row_512(row, cols);
    }
    inline __attribute__((always_inline)) void exp_of_16(float* values) const {
        _mm512_storeu_ps(values, exp_512(_mm512_loadu_ps(values)));
    }
    inline __attribute__((always_inline)) float weigh(std::int64_t row, float shift) const {
        constexpr std::int64_t kHalf = 16;
        float* weights = tile.logits + row * tile.stride;
        std::uint16_t* halves = to + row * tile.stride;
        const __m512 shifts = _mm512_set1_ps(shift), factor = _mm512_set1_ps(tile.prob_factor),
                     scale = _mm512_set1_ps(kWeightScale);
        __m512 sum = _mm512_setzero_ps();
        const auto scaled_weights = [&](std::int64_t c) {
            const __m512 prob = exp_512<true>(_mm512_sub_ps(_mm512_loadu_ps(weights + c), shifts)),
                         weight = kHasFactor ? _mm512_mul_ps(prob, factor) : prob;
            sum = _mm512_add_ps(sum, prob);
            _mm512_storeu_ps(weights + c, weight);
            return _mm512_mul_ps(weight, scale);
        };
        for (std::int64_t c = 0; c < tile.cols; c += 2 * kHalf) {
            const __m512 low = scaled_weights(c), high = c + kHalf < tile.cols
                                                             ? scaled_weights(c + kHalf)
                                                             : _mm512_setzero_ps();
            _mm512_storeu_si512(halves + c, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
        const float total = sum_of_lanes_512(sum);
        if (total != total) narrow_row(weights, tile.cols, halves, lost);
        return total;
    }
};

// A row of sums times the rescaling that softmax found for it.
inline void rescale_row(const PairProduct& sums, std::int64_t row, float factor) {
    constexpr std::int64_t kHalf = 16;
    if (factor == 1.0f) return;
    float* to = sums.out + row * sums.out_stride;
    const __m512 factors = _mm512_set1_ps(factor);
    for (std::int64_t c = 0; c < sums.cols; c += kHalf)
        _mm512_storeu_ps(to + c, _mm512_mul_ps(_mm512_loadu_ps(to + c), factors));
}
