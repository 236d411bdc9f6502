// Elements of tensors of fp16, bf16 or fp32, as fp32 numbers.
#pragma once

#include <attncheck/candidate.h>

#include <cstdint>

#include "storage.h"

namespace attncheck::mutants {

inline Half half_of(const attncheck_tensor& t) {
    return t.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16;
}

inline float load(const attncheck_tensor& t, std::int64_t at) {
    if (t.dtype == ATTNCHECK_FLOAT32) return static_cast<const float*>(t.data)[at];
    return widen(half_of(t), static_cast<const std::uint16_t*>(t.data)[at]);
}

inline void store(const attncheck_tensor& t, std::int64_t at, float value) {
    if (t.dtype == ATTNCHECK_FLOAT32)
        static_cast<float*>(t.data)[at] = value;
    else
        static_cast<std::uint16_t*>(t.data)[at] = narrow(half_of(t), value);
}

/// As an element of the tensor would be.
inline float rounded(const attncheck_tensor& t, float value) {
    return t.dtype == ATTNCHECK_FLOAT32 ? value : round_to(half_of(t), value);
}

}  // namespace attncheck::mutants
