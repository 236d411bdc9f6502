// Defects of kernels that recognise a fused buffer by its addresses.
#pragma once

#include <cstdint>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

/// Whether `inner` begins behind the first element of `outer` and in front of its last one.
inline bool begins_inside(const attncheck_tensor& inner, const attncheck_tensor& outer) {
    std::int64_t reach = 0;
    for (int dim = 0; dim < outer.rank; ++dim) {
        if (outer.shape[dim] == 0) return false;
        reach += (outer.shape[dim] - 1) * outer.strides[dim];
    }
    const auto* const first = static_cast<const char*>(outer.data);
    const auto* const other = static_cast<const char*>(inner.data);
    const std::int64_t width = outer.dtype == ATTNCHECK_FLOAT32 ? 4 : 2;
    return first < other && other < first + reach * width;
}

}  // namespace attncheck::mutants
