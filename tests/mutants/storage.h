// Storage types of the library of mutants: exact widening to fp32, narrowing to nearest with ties
// to even.
#pragma once

#include <bit>
#include <cstdint>

namespace attncheck::mutants {

enum class Half { fp16, bf16 };

inline float widen_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Exact: the fp16 bits, moved to their fp32 place, are a number 2^112 times too small (subnormals
/// included).
inline float widen_fp16(std::uint16_t bits) {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

/// E5M2 is the upper half of an fp16.
inline float widen_e5m2(std::uint8_t bits) {
    return widen_fp16(static_cast<std::uint16_t>(bits << 8));
}

/// E4M3FN: bias 7, no infinity, one NaN per sign.
inline float widen_e4m3fn(std::uint8_t bits) {
    const std::uint32_t magnitude = bits & 0x7fu, sign = (bits & 0x80u) << 24;
    if (magnitude == 0x7fu) return std::bit_cast<float>(0x7fc00000u | sign);
    const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

inline float widen(Half type, std::uint16_t bits) {
    return type == Half::fp16 ? widen_fp16(bits) : widen_bf16(bits);
}

std::uint16_t narrow_fp16(float value);
std::uint16_t narrow_bf16(float value);

inline std::uint16_t narrow(Half type, float value) {
    return type == Half::fp16 ? narrow_fp16(value) : narrow_bf16(value);
}

inline float round_to(Half type, float value) { return widen(type, narrow(type, value)); }

/// Exponent field 0, fraction not 0.
inline bool is_subnormal_fp16(std::uint16_t bits) {
    return (bits & 0x7c00u) == 0 && (bits & 0x03ffu) != 0;
}

inline bool is_infinite(Half type, std::uint16_t bits) {
    return (bits & 0x7fffu) == (type == Half::fp16 ? 0x7c00u : 0x7f80u);
}

}  // namespace attncheck::mutants
