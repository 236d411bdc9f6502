// What the rulings on calls of several operators need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

/// Collects the outcome of the constraints.
struct Ruling {
    bool is_legal = true, is_undefined = false;

    /// overlooked: a defect that accepts a call which breaks this constraint.
    void require(bool holds, bool overlooked = false) {
        if (holds) return;
        (overlooked ? is_undefined : is_legal) = overlooked;
    }
    /// A defect that rejects what is legal.
    void refuse(bool defect) { is_legal = is_legal && !defect; }
    bool is_settled() const { return !is_legal || is_undefined; }
};

inline bool in(std::int64_t value, std::int64_t least, std::int64_t most) {
    return least <= value && value <= most;
}

inline bool is_half_type(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT16 || dtype == ATTNCHECK_BFLOAT16;
}

inline bool has_extents(const attncheck_tensor& tensor,
                        std::initializer_list<std::int64_t> extents) {
    return std::equal(extents.begin(), extents.end(), tensor.shape);
}

/// Of cumulative lengths that are legal.
inline std::int64_t longest(const attncheck_int_array& lengths) {
    std::int64_t most = 0, previous = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        most = std::max(most, lengths.values[b] - previous);
        previous = lengths.values[b];
    }
    return most;
}

}  // namespace attncheck::mutants
