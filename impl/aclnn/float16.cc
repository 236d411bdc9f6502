#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "acl/acl_base.h"
#include "impl/kernels/half_formats.h"

namespace {

constexpr std::uint16_t kLargestFinite = 0x7bff;  // 65504

/// widen_fp16, except that exponent 31 is an ordinary one: 2^16 * (1 + fraction / 1024).
float widen_without_infinity(std::uint16_t bits) {
    if ((bits & 0x7c00u) != 0x7c00u) return attncheck::impl::widen_fp16(bits);
    const float magnitude = 65536.0f + 64.0f * static_cast<float>(bits & 0x3ffu);
    return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

std::uint16_t narrow_saturating(float value) {
    const std::uint16_t bits = attncheck::impl::narrow_fp16(value);
    const std::uint16_t magnitude = bits & 0x7fffu;  // infinity and NaN are the largest patterns
    return static_cast<std::uint16_t>((bits & 0x8000u) | std::min(magnitude, kLargestFinite));
}

/// `value` rounded to odd, so that rounding the result once more is rounding `value` once.
float narrow_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    if (nearest == value || std::isnan(value)) return nearest;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
    const bool away_from_zero = std::abs(static_cast<double>(nearest)) > std::abs(value);
    return std::bit_cast<float>((away_from_zero ? bits - 1 : bits) | 1u);
}

}  // namespace

extern "C" {

float aclFloat16ToFloat(aclFloat16 value) { return widen_without_infinity(value); }

aclFloat16 aclFloatToFloat16(float value) { return narrow_saturating(value); }

/// op::tagFp16::operator=(const double&), which programs compiled against the vendor's header call
/// out of line; `half` is the object, whose only member is its bits. This repository's header
/// defines the operator inline, so it can neither be defined here under its own name nor be used.
ACL_FUNC_VISIBILITY void* attncheck_assign_half_from_double(
    void* half, const double& value) __asm__("_ZN2op7tagFp16aSERKd");

}  // extern "C"

void* attncheck_assign_half_from_double(void* half, const double& value) {
    *static_cast<std::uint16_t*>(half) = narrow_saturating(narrow_to_odd(value));
    return half;
}
