#include "storage.h"

namespace attncheck::mutants {

std::uint16_t narrow_bf16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return static_cast<std::uint16_t>(bits >> 16 | 0x0040u);  // NaN, quiet
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

std::uint16_t narrow_fp16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u)
        return static_cast<std::uint16_t>(sign | 0x7c00u);  // from 65520 on
    if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the fp16 subnormal unit 2^-24
                                    // with fp32's last bit
        const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
    }
    const std::uint32_t rebiased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(sign | (rebiased + 0x0fffu + (rebiased >> 13 & 1u)) >> 13);
}

}  // namespace attncheck::mutants
