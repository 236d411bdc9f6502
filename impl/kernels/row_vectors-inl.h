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
#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kRowLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

#include "impl/kernels/row_vectors_512-inl.h"

HWY_INLINE FloatVec exp_of(FloatVec x) { return FloatVec{exp_512(x.raw)}; }
HWY_INLINE float sum_of_lanes(FloatVec vector) { return sum_of_lanes_512(vector.raw); }
HWY_INLINE float max_of_row(const float* row, std::int64_t cols) {
    return max_of_row_512(row, cols);
}

#else

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
