// The exponential, and sum and maximum of the lanes of a row, for attention_kernels.cc.
// Included once per instruction set, as half_vectors-inl.h.
#if defined(ATTNCHECK_IMPL_ROW_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNCHECK_IMPL_ROW_VECTORS_INL_H
#undef ATTNCHECK_IMPL_ROW_VECTORS_INL_H
#else
#define ATTNCHECK_IMPL_ROW_VECTORS_INL_H
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

constexpr std::int64_t kRowLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. The Taylor polynomial of degree 7 leaves
// out less than r^8 / 8! < 2^-27.
HWY_INLINE FloatVec exp_polynomial(FloatVec r) {
    const FloatTag d;
    FloatVec sum = hn::Set(d, 1.0f / 5040);
    for (const float coefficient :
         {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        sum = hn::MulAdd(sum, r, hn::Set(d, coefficient));
    }
    return sum;
}

// ln 2 in two parts; the first has 9 bits, so that its product with n is exact.
HWY_INLINE FloatVec exp_remainder(FloatVec x, FloatVec minus_n) {
    const FloatTag d;
    return hn::MulAdd(minus_n, hn::Set(d, -0x1.bd0105c610ca8p-13f),
                      hn::MulAdd(minus_n, hn::Set(d, 0x1.63p-1f), x));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// vscalefps reaches subnormal results and infinity in one step, vmaxps and vminps return their
// second operand if it is NaN.
HWY_INLINE FloatVec exp_of(FloatVec x) {
    const FloatTag d;
    // e^-104 rounds to 0 and e^89 to infinity.
    const __m512 bounded =
        _mm512_min_ps(hn::Set(d, 89.0f).raw, _mm512_max_ps(hn::Set(d, -104.0f).raw, x.raw));
    const FloatVec n{_mm512_roundscale_ps(_mm512_mul_ps(bounded, hn::Set(d, 1.44269504f).raw),
                                          _MM_FROUND_TO_NEAREST_INT)};
    const FloatVec r = exp_remainder(FloatVec{bounded}, hn::Neg(n));
    return FloatVec{_mm512_scalef_ps(exp_polynomial(r).raw, n.raw)};
}

#else

// Scaling in two steps reaches subnormal results and 2^128.
HWY_INLINE FloatVec exp_of(FloatVec x) {
    const FloatTag d;
    const SignedWordTag di;
    // e^-104 rounds to 0 and e^89 to infinity. Written so that NaN becomes a number here.
    const FloatVec low = hn::Set(d, -104.0f), high = hn::Set(d, 89.0f);
    FloatVec bounded = hn::IfThenElse(hn::Gt(x, low), x, low);
    bounded = hn::IfThenElse(hn::Lt(bounded, high), bounded, high);
    const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
    const FloatVec r = exp_remainder(bounded, hn::Neg(hn::ConvertTo(d, n)));
    const auto half_n = hn::ShiftRight<1>(n);
    const auto power_of_two = [&](auto exponent) HWY_ATTR {
        return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
    };
    const FloatVec scaled =
        hn::Mul(hn::Mul(exp_polynomial(r), power_of_two(half_n)), power_of_two(hn::Sub(n, half_n)));
    return hn::IfThenElse(hn::IsNaN(x), x, scaled);
}

#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// Halves, quarters, ... of the vector, as the loop below adds them.
HWY_INLINE float sum_of_lanes(FloatVec vector) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(vector.raw), _mm512_extractf32x8_ps(vector.raw, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// NaN if any element is. vmaxps drops a NaN in its first operand; a comparison finds it in one of
// two vectors.
HWY_INLINE float max_of_row(const float* row, std::int64_t cols) {
    __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    unsigned nan = 0;
    std::int64_t c = 0;
    for (; c + 32 <= cols; c += 32) {
        const __m512 x = _mm512_loadu_ps(row + c), y = _mm512_loadu_ps(row + c + 16);
        nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, _mm512_max_ps(y, most));
    }
    if (c < cols) {
        const __m512 x = _mm512_loadu_ps(row + c);
        nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, most);
    }
    if (nan != 0) return std::numeric_limits<float>::quiet_NaN();
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256(most), _mm512_extractf32x8_ps(most, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#else

HWY_INLINE float sum_of_lanes(FloatVec vector) {
    alignas(64) float lanes[kRowLanes];
    hn::Store(vector, FloatTag(), lanes);
    for (std::int64_t width = kRowLanes / 2; width > 0; width /= 2) {
        for (std::int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

// NaN if any element is; vector maxima alone drop NaN on some targets.
HWY_INLINE float max_of_row(const float* row, std::int64_t cols) {
    const FloatTag d;
    FloatVec most = hn::Set(d, -std::numeric_limits<float>::infinity()), nan = hn::Zero(d);
    for (std::int64_t c = 0; c < cols; c += kRowLanes) {
        const FloatVec x = hn::LoadU(d, row + c);
        most = hn::IfThenElse(hn::Gt(x, most), x, most);
        nan = hn::IfThenElse(hn::IsNaN(x), x, nan);
    }
    alignas(64) float lanes[kRowLanes], nan_lanes[kRowLanes];
    hn::Store(most, d, lanes);
    hn::Store(nan, d, nan_lanes);
    for (std::int64_t i = 1; i < kRowLanes; ++i) {
        lanes[0] = std::max(lanes[0], lanes[i]);
        nan_lanes[0] += nan_lanes[i];
    }
    return nan_lanes[0] == 0.0f ? lanes[0] : std::numeric_limits<float>::quiet_NaN();
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
