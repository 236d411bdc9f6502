// What the adjoint relations of attention gradients share: arguments as dual numbers, directions,
// and one side of <grad, r> = d<dO, O> along r.
#pragma once

#include <cmath>
#include <vector>

#include "properties/laws/relation_checks.h"
#include "ref/numbers/dual.h"

namespace attncheck::properties {

inline std::vector<ref::Dual> dual(const std::vector<double>& values) {
    return std::vector<ref::Dual>(values.begin(), values.end());
}

inline std::vector<double> random_direction(std::size_t width, Random& random) {
    std::vector<double> direction(width);
    for (double& r : direction) r = static_cast<double>(random.between(-2, 2));
    return direction;
}

/// A gradient of the candidate and the bounds of its elements.
struct BoundedGradient {
    std::vector<double> values, bound;

    /// Adds <grad, r> of one row to the left side, and what the bounds allow.
    void add(std::size_t row, const std::vector<double>& direction, Identity& identity,
             std::size_t slot) const {
        for (std::size_t d = 0; d < direction.size(); ++d) {
            if (direction[d] == 0) continue;  // an overflowed element is not judged
            const std::size_t k = row * direction.size() + d;
            identity.left[slot] += values[k] * direction[d];
            identity.allowed[slot] += bound[k] * std::fabs(direction[d]);
            identity.size[slot] += std::fabs(values[k] * direction[d]);
        }
    }
};

}  // namespace attncheck::properties
