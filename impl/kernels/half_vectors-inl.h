// Vector counterparts of half_formats.h. Included once per instruction set, inside the per-target
// namespace mechanism of Highway; the guard toggles with the target.
#if defined(ATTNCHECK_IMPL_HALF_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNCHECK_IMPL_HALF_VECTORS_INL_H
#undef ATTNCHECK_IMPL_HALF_VECTORS_INL_H
#else
#define ATTNCHECK_IMPL_HALF_VECTORS_INL_H
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: head_dim is a multiple of 16, so no vector is ever partly filled.
using FloatTag = hn::CappedTag<float, 16>;
using WordTag = hn::Rebind<std::uint32_t, FloatTag>;
using SignedWordTag = hn::Rebind<std::int32_t, FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using WordVec = hn::Vec<WordTag>;
using HalfVec = hn::Vec<HalfTag>;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
using LineTag = hn::Repartition<std::uint16_t, FloatTag>;  // 32 halves: a line of memory
using LineVec = hn::Vec<LineTag>;
#endif

// Values below 2^16 only: the saturation of DemoteTo never acts.
HWY_INLINE HalfVec low_halves(WordVec words) {
    return hn::DemoteTo(HalfTag(), hn::BitCast(SignedWordTag(), words));
}

struct Bf16 {
    static HWY_INLINE FloatVec widen(HalfVec half) {
        return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), half)));
    }
    // Highway's own conversion to bf16 truncates and can turn NaN into infinity, hence integer
    // rounding.
    static HWY_INLINE HalfVec narrow(FloatVec value) {
        const WordTag d;
        const WordVec bits = hn::BitCast(d, value);
        const WordVec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
        const WordVec rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu)));
        const WordVec quiet = hn::Or(bits, hn::Set(d, 0x400000u));
        const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
        return low_halves(hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded)));
    }
    // For sums of products of bf16 numbers only: a NaN of theirs has 16 low zero bits (it is an
    // operand's, widened, or the default one), so that rounding cannot carry it into infinity or
    // zero and needs no select.
    static HWY_INLINE HalfVec narrow_sum(FloatVec value) {
        const WordTag d;
        const WordVec bits = hn::BitCast(d, value);
        const WordVec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
        const WordVec rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu)));
        return low_halves(hn::ShiftRight<16>(rounded));
    }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    // The same on 32 pairs of halves: up where the lower half, plus one if the upper is odd, is
    // more than half an ulp. 6 operations for 32 elements, where rounding each vector takes 9.
    static HWY_INLINE LineVec narrow_sums(FloatVec low, FloatVec high) {
        const LineTag d;
        const LineVec low_bits = hn::BitCast(d, low), high_bits = hn::BitCast(d, high);
        const LineVec upper = hn::ConcatOdd(d, high_bits, low_bits);
        const LineVec lower = hn::ConcatEven(d, high_bits, low_bits);
        const LineVec one = hn::Set(d, 1);
        const LineVec remainder = hn::SaturatedAdd(lower, hn::And(upper, one));
        const auto up = hn::Gt(remainder, hn::Set(d, 0x8000));
        return LineVec{_mm512_mask_add_epi16(upper.raw, up.raw, upper.raw, one.raw)};
    }
#endif
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

// F16C: exact widening, round to nearest even whatever the mode register says, subnormals and NaN
// as required.
struct Fp16 {
    using Fp16Tag = hn::Rebind<hwy::float16_t, FloatTag>;
    static HWY_INLINE FloatVec widen(HalfVec half) {
        return hn::PromoteTo(FloatTag(), hn::BitCast(Fp16Tag(), half));
    }
    static HWY_INLINE HalfVec narrow(FloatVec value) {
        return hn::BitCast(HalfTag(), hn::DemoteTo(Fp16Tag(), value));
    }
    static HWY_INLINE HalfVec narrow_sum(FloatVec value) { return narrow(value); }
#if HWY_TARGET <= HWY_AVX3
    static HWY_INLINE LineVec narrow_sums(FloatVec low, FloatVec high) {
        return hn::Combine(LineTag(), narrow(high), narrow(low));
    }
#endif
};

#else

// Highway's emulation of fp16 knows neither infinity nor NaN; these are the branches of
// half_formats.h as selects.
struct Fp16 {
    static HWY_INLINE FloatVec widen(HalfVec half) {
        const WordTag d;
        const SignedWordTag di;
        const WordVec bits = hn::PromoteTo(d, half);
        const WordVec sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000u)));
        const WordVec magnitude = hn::And(bits, hn::Set(d, 0x7fffu));
        const auto signed_magnitude = hn::BitCast(di, magnitude);
        const WordVec mantissa = hn::ShiftLeft<13>(magnitude);
        const WordVec normal = hn::Add(mantissa, hn::Set(d, 112u << 23));
        const FloatVec count = hn::ConvertTo(FloatTag(), signed_magnitude);
        const WordVec subnormal = hn::BitCast(d, hn::Mul(count, hn::Set(FloatTag(), 0x1p-24f)));
        const WordVec infinity = hn::Or(mantissa, hn::Set(d, 0x7f800000u));
        const WordVec quiet_nan = hn::Or(infinity, hn::Set(d, 0x400000u));
        WordVec result = hn::IfThenElse(
            hn::RebindMask(d, hn::Lt(signed_magnitude, hn::Set(di, 0x400))), subnormal, normal);
        result = hn::IfThenElse(hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, 0x7bff))),
                                infinity, result);
        result = hn::IfThenElse(hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, 0x7c00))),
                                quiet_nan, result);
        return hn::BitCast(FloatTag(), hn::Or(result, sign));
    }
    static HWY_INLINE HalfVec narrow(FloatVec value) {
        const WordTag d;
        const SignedWordTag di;
        const WordVec bits = hn::BitCast(d, value);
        const WordVec sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u));
        const WordVec magnitude = hn::And(bits, hn::Set(d, 0x7fffffffu));
        const auto signed_magnitude = hn::BitCast(di, magnitude);
        const WordVec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
        const WordVec rebias = hn::Set(d, 0xfffu - (112u << 23));
        const WordVec normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, rebias)));
        const FloatVec shifted =
            hn::Add(hn::BitCast(FloatTag(), magnitude), hn::Set(FloatTag(), 0.5f));
        const WordVec subnormal = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, 0x3f000000u));
        const WordVec payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3ffu));
        const WordVec quiet_nan = hn::Or(payload, hn::Set(d, 0x7e00u));
        WordVec result =
            hn::IfThenElse(hn::RebindMask(d, hn::Lt(signed_magnitude, hn::Set(di, 0x38800000))),
                           subnormal, normal);
        const auto is_large = hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, 0x477fffff)));
        result = hn::IfThenElse(is_large, hn::Set(d, 0x7c00u), result);
        const auto is_nan = hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, 0x7f800000)));
        result = hn::IfThenElse(is_nan, quiet_nan, result);
        return low_halves(hn::Or(result, sign));
    }
    static HWY_INLINE HalfVec narrow_sum(FloatVec value) { return narrow(value); }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
