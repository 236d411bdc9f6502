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
#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

#include "impl/kernels/transpose_square-inl.h"

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
