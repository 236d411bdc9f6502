#ifndef ATTNCHECK_IMPL_HALF_FORMATS_H
#define ATTNCHECK_IMPL_HALF_FORMATS_H

#include <bit>
#include <cstdint>

/// The two 16-bit storage formats, one element at a time (vectors: half_vectors-inl.h).
///
/// fp16  IEEE 754 binary16: 1 + 5 + 10 bits, bias 15.
/// bf16  the upper half of a binary32: 1 + 8 + 7 bits.
///
/// Widening is exact. Narrowing rounds to nearest, ties to even; a magnitude that rounds past the
/// largest finite value becomes infinity, a subnormal result is kept, and NaN stays NaN of the same
/// sign, quietened.
namespace attncheck::impl {

enum class HalfFormat { kFp16 = 0, kBf16 = 1 };  // also the index into the kernel table

inline float widen_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t narrow_bf16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    // Adding the rounding increment to a NaN could carry into infinity, so NaN takes its own way.
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float widen_fp16(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
    }
    if (magnitude < 0x400u) {  // zero and subnormals: an integer count of 2^-24, exact in binary32
        const float unsigned_value = static_cast<float>(magnitude) * 0x1p-24f;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(unsigned_value));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));  // bias 15 -> 127
}

inline std::uint16_t narrow_fp16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) {
        half = 0x7c00u;  // 2^16 and above; 65520 .. 2^16 carries into infinity in the last branch
    } else if (magnitude < 0x38800000u) {
        // Below 2^-14: one ulp of 0.5f is 2^-24, the subnormal unit, so the addition rounds to it.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        half = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    } else {
        half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
}

inline float widen(HalfFormat format, std::uint16_t bits) {
    return format == HalfFormat::kFp16 ? widen_fp16(bits) : widen_bf16(bits);
}

inline std::uint16_t narrow(HalfFormat format, float value) {
    return format == HalfFormat::kFp16 ? narrow_fp16(value) : narrow_bf16(value);
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_HALF_FORMATS_H
