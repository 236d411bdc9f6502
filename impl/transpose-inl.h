// Transposition of words of 32 bits, for attention_kernels.cc.
// Included once per instruction set, as half_vectors-inl.h.
#if defined(ATTNCHECK_IMPL_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNCHECK_IMPL_TRANSPOSE_INL_H
#undef ATTNCHECK_IMPL_TRANSPOSE_INL_H
#else
#define ATTNCHECK_IMPL_TRANSPOSE_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "impl/attention_kernels.h"
#include "impl/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// 16 x 16 words in registers: neighbours within 128-bit blocks, then blocks.
HWY_INLINE void transpose_square(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // r[4 g + c] now has, in block b, column 4 b + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i low_even = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                      low_odd = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                      high_even = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                      high_odd = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}

void transpose_words(const WordTranspose& p) {
    for (std::int64_t col = 0; col < p.cols; col += 16) {
        const std::int64_t cols = p.cols - col < 16 ? p.cols - col : 16;
        const __mmask16 mask = static_cast<__mmask16>((1u << cols) - 1u);
        for (std::int64_t row = 0; row < p.rows; row += 16) {
            __m512i r[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i)
                r[i] = _mm512_maskz_loadu_epi32(mask, p.from + (row + i) * p.from_stride + col);
            transpose_square(r);
            std::uint32_t* to = p.to + col * p.to_stride + row;
            if (cols == 16) {
#pragma GCC unroll 16
                for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * p.to_stride, r[i]);
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < 16; ++i)
                    if (i < cols) _mm512_storeu_si512(to + i * p.to_stride, r[i]);
            }
        }
    }
}

#else

void transpose_words(const WordTranspose& p) {
    constexpr std::int64_t kBlock = 16;  // 16 rows of 16 words are 16 lines on either side
    for (std::int64_t first = 0; first < p.cols; first += kBlock) {
        const std::int64_t end = std::min(p.cols, first + kBlock);
        for (std::int64_t r = 0; r < p.rows; ++r) {
            const std::uint32_t* from = p.from + r * p.from_stride;
            for (std::int64_t c = first; c < end; ++c) p.to[c * p.to_stride + r] = from[c];
        }
    }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
