// Sizes of defects that stay inside the rigorous bound of every element: a fraction of the roundoff
// of the storage type, so that exact data still round to the right number.
#pragma once

#include <bit>

#include "attncheck/candidate.h"
#include "storage.h"

namespace attncheck::mutants {

/// 1 + 0.4 u: +0.02 % (fp16), +0.16 % (bf16).
inline float subtle_gain(Half type) {
    return 1.0f + 0.4f * (type == Half::fp16 ? 0x1p-11f : 0x1p-8f);
}

/// The same by element type; 1 for types whose bound leaves no room.
inline float subtle_gain(std::int32_t dtype) {
    if (dtype == ATTNCHECK_FLOAT16) return subtle_gain(Half::fp16);
    return dtype == ATTNCHECK_BFLOAT16 ? subtle_gain(Half::bf16) : 1.0f;
}

/// Towards zero instead of to nearest. fp16: normal numbers only, others are left alone.
inline float cut_to(Half type, float value) {
    if (type == Half::fp16 && !(value >= 0x1p-14f || value <= -0x1p-14f)) return value;
    const std::uint32_t kept = type == Half::fp16 ? 0xffffe000u : 0xffff0000u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & kept);
}

inline float cut_to(std::int32_t dtype, float value) {
    if (dtype == ATTNCHECK_FLOAT16) return cut_to(Half::fp16, value);
    return dtype == ATTNCHECK_BFLOAT16 ? cut_to(Half::bf16, value) : value;
}

}  // namespace attncheck::mutants
