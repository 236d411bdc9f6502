#include "impl/kernels/bf16_dot_kernels.h"

#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/wide_intrinsics.h"

#if defined(ATTNCHECK_IMPL_HAVE_BF16_DOT)

HWY_PUSH_ATTRIBUTES(ATTNCHECK_IMPL_AVX512_BF16)

namespace attncheck::impl {
namespace {

#include "impl/kernels/softmax_512-inl.h"

constexpr std::int64_t kLanes = 16;
// 24 sums, 4 vectors of the right and one broadcast pair of the left: 29 of 32 registers.
constexpr int kMaxRows = 6, kMaxCols = 4;

template <bool kAccumulate, int kRows, int kCols>
void multiply_tile(const PairProduct& problem, std::int64_t row, std::int64_t col) {
    const PairProduct p = problem;  // stores of vectors may alias what a reference is to
    __m512 sum[kRows][kCols];
    float* out = p.out + row * p.out_stride + col;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) sum[r][v] = _mm512_setzero_ps();
    }
    const std::uint32_t* left = p.left + row * p.left_row;
    const std::uint32_t* right = p.right + col;
    for (std::int64_t k = 0; k < p.depth_pairs; ++k) {
        __m512bh b[kCols];
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) b[v] = (__m512bh)_mm512_loadu_si512(right + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const __m512bh a = (__m512bh)_mm512_set1_epi32(static_cast<int>(left[r * p.left_row]));
#pragma GCC unroll 8
            for (int v = 0; v < kCols; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], a, b[v]);
        }
        left += p.left_depth;
        right += p.right_stride;
    }
    // Sums that are added to never meet the instruction: they may be subnormal.
    const __m512 factor = _mm512_set1_ps(p.factor), zero = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) {
            float* to = out + r * p.out_stride + v * kLanes;
            const __m512 scaled = kAccumulate
                                      ? _mm512_fmadd_ps(sum[r][v], factor, _mm512_loadu_ps(to))
                                      : _mm512_mul_ps(sum[r][v], factor);
            _mm512_storeu_ps(to, _mm512_add_ps(scaled, zero));
        }
    }
}

// All rows against kCols vectors of columns, in strips of nearly equal height.
template <bool kAccumulate, int kCols>
void multiply_rows(const PairProduct& p, std::int64_t col) {
    using Tile = void (*)(const PairProduct&, std::int64_t, std::int64_t);
    static constexpr Tile kTiles[kMaxRows] = {
        &multiply_tile<kAccumulate, 1, kCols>, &multiply_tile<kAccumulate, 2, kCols>,
        &multiply_tile<kAccumulate, 3, kCols>, &multiply_tile<kAccumulate, 4, kCols>,
        &multiply_tile<kAccumulate, 5, kCols>, &multiply_tile<kAccumulate, 6, kCols>,
    };
    const std::int64_t strips = (p.rows + kMaxRows - 1) / kMaxRows;
    std::int64_t row = 0;
    for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t height = (p.rows - row) / (strips - strip);
        kTiles[height - 1](p, row, col);
        row += height;
    }
}

template <bool kAccumulate>
void multiply(const PairProduct& p) {
    std::int64_t col = 0;
    for (; col + kMaxCols * kLanes <= p.cols; col += kMaxCols * kLanes)
        multiply_rows<kAccumulate, kMaxCols>(p, col);
    if (col + 2 * kLanes <= p.cols) {
        multiply_rows<kAccumulate, 2>(p, col);
        col += 2 * kLanes;
    }
    if (col < p.cols) multiply_rows<kAccumulate, 1>(p, col);
}

void product(const PairProduct& p) { p.accumulate ? multiply<true>(p) : multiply<false>(p); }

constexpr short kLeastPlain = (127 - 38) << 7, kPlainRange = (38 + 20) << 7;

// Halves whose magnitude bits are not 0 and outside the plain range.
inline __mmask16 not_plain_halves(__m256i halves) {
    const __m256i magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    const __mmask16 outside =
        _mm256_cmpge_epu16_mask(_mm256_sub_epi16(magnitude, _mm256_set1_epi16(kLeastPlain)),
                                _mm256_set1_epi16(kPlainRange));
    return _mm256_mask_test_epi16_mask(outside, magnitude, magnitude);
}

inline __mmask32 not_plain_line(__m512i halves) {
    const __m512i magnitude = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    const __mmask32 outside =
        _mm512_cmpge_epu16_mask(_mm512_sub_epi16(magnitude, _mm512_set1_epi16(kLeastPlain)),
                                _mm512_set1_epi16(kPlainRange));
    return _mm512_mask_test_epi16_mask(outside, magnitude, magnitude);
}

inline __m256i load_halves(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

bool all_plain(const std::uint16_t* row, std::int64_t count) {
    unsigned any = 0;
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes)
        any |= not_plain_line(_mm512_loadu_si512(row + i));
    if (i < count) any |= not_plain_halves(load_halves(row + i));
    return any == 0;
}

void keep_plain(const std::uint16_t* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
        const __m256i halves = load_halves(from + i);
        const __mmask16 keep = static_cast<__mmask16>(~not_plain_halves(halves));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm256_maskz_mov_epi16(keep, halves));
    }
}

void pair_rows(const std::uint16_t* from, std::int64_t rows, std::int64_t width,
               std::uint32_t* to) {
    for (std::int64_t row = 0; row < rows; row += 2, from += 2 * width, to += width) {
        for (std::int64_t c = 0; c < width; c += kLanes) {
            const __m512i low = _mm512_cvtepu16_epi32(load_halves(from + c)),
                          high = _mm512_cvtepu16_epi32(load_halves(from + width + c));
            _mm512_storeu_si512(to + c, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    }
}

bool narrow_rows(const WeightTile& tile, std::uint16_t* to) {
    unsigned lost = 0;
    for (std::int64_t r = 0; r < tile.rows; ++r)
        narrow_row(tile.from + r * tile.stride, tile.cols, to + r * tile.stride, lost);
    return lost != 0;
}

template <bool kHasFactor>
bool softmax(const SoftmaxTile& tile, std::uint16_t* to) {
    unsigned lost = 0;
    const SoftmaxVectors<kHasFactor> vectors{tile, to, lost};
    softmax_of(tile, vectors);
    return lost != 0;
}

bool softmax_tile(const SoftmaxTile& tile, std::uint16_t* to) {
    return tile.prob_factor == 1.0f ? softmax<false>(tile, to) : softmax<true>(tile, to);
}

bool attend(const AttentionTile& tile) {
    product(tile.logits);
    const bool has_lost = softmax_tile(tile.softmax, tile.halves);
    for (std::int64_t r = 0; r < tile.sums.rows && tile.sums.accumulate; ++r)
        rescale_row(tile.sums, r, tile.softmax.rescale[r]);
    product(tile.sums);
    return has_lost;
}

// P is rounded to bf16, so that half an ulp more does not count: the reciprocal of a row's sum
// takes the place of divisions (one every 16 cycles on Intel's processors, more than all the rest;
// on a Zen 5 it makes no difference). Not where the sum or its reciprocal is subnormal or no
// number.
void gradient_tile(const GradientTile& tile) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* probs = tile.logits + r * tile.stride;
        float* score_grads = tile.prob_grads + r * tile.stride;
        const float sum = tile.row_sum[r];
        const bool divides = !(sum >= 0x1p-126f && sum <= 0x1p126f);
        const __m512 row_max = _mm512_set1_ps(tile.row_max[r]), row_sum = _mm512_set1_ps(sum),
                     reciprocal = _mm512_set1_ps(1.0f / sum), delta = _mm512_set1_ps(tile.delta[r]);
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const __m512 exponential = exp_512(_mm512_sub_ps(_mm512_loadu_ps(probs + c), row_max));
            const __m512 prob = divides ? _mm512_div_ps(exponential, row_sum)
                                        : _mm512_mul_ps(exponential, reciprocal);
            _mm512_storeu_ps(probs + c, prob);
            _mm512_storeu_ps(
                score_grads + c,
                _mm512_mul_ps(prob, _mm512_sub_ps(_mm512_loadu_ps(score_grads + c), delta)));
        }
    }
}

bool narrow_row_pairs(const WeightTile& tile, std::uint32_t* to) {
    // Halves 0..15 are of the even row, 16..31 of the odd one.
    const __m512i interleave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    unsigned lost = 0;
    for (std::int64_t r = 0; r < tile.rows; r += 2, to += tile.stride) {
        const float* even = tile.from + r * tile.stride;
        const bool has_odd = r + 1 < tile.rows;
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const __m512 low = plain_weights(even + c, lost),
                         high = has_odd ? plain_weights(even + tile.stride + c, lost)
                                        : _mm512_setzero_ps();
            _mm512_storeu_si512(to + c, _mm512_permutexvar_epi16(
                                            interleave, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
        }
    }
    return lost != 0;
}

void split_weights(const WeightTile& tile, float* plain, float* rest) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
        for (std::int64_t c = r * tile.stride; c < r * tile.stride + tile.cols; c += kLanes) {
            const __m512i bits = _mm512_loadu_si512(tile.from + c);
            const __mmask16 outside = not_plain_weights(bits);
            _mm512_storeu_si512(plain + c,
                                _mm512_maskz_mov_epi32(static_cast<__mmask16>(~outside), bits));
            _mm512_storeu_si512(rest + c, _mm512_maskz_mov_epi32(outside, bits));
        }
    }
}

}  // namespace
}  // namespace attncheck::impl

HWY_POP_ATTRIBUTES

namespace attncheck::impl {

const Bf16DotKernels* bf16_dot_kernels() {
    static constexpr Bf16DotKernels kTable = {
        &product,      &all_plain, &keep_plain,    &pair_rows,        &narrow_rows,
        &softmax_tile, &attend,    &gradient_tile, &narrow_row_pairs, &split_weights,
    };
    static const bool available =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bf16");
    return available ? &kTable : nullptr;
}

}  // namespace attncheck::impl

#else

namespace attncheck::impl {
const Bf16DotKernels* bf16_dot_kernels() { return nullptr; }
}  // namespace attncheck::impl

#endif
