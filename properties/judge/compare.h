// The comparator: stored results of a candidate against expected values with absolute bounds. Knows
// no operator.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "ref/bounds/error_bound.h"

namespace attncheck::properties {

struct Comparison {
    enum class Kind {
        agrees,
        wrong_value,     ///< finite, outside its bound
        not_finite,      ///< NaN or infinity where a finite number is due
        not_propagated,  ///< finite where NaN or infinity is due
        wrong_size
    } kind = Kind::agrees;
    std::size_t index = 0;  ///< the first element of the kind reported, else the worst
    std::size_t wrong = 0;  ///< number of elements not accepted
    std::size_t compared = 0;
    double worst_ratio = 0;  ///< largest |got - expected| / bound over finite elements (0/0 is 0)
    double expected = 0, got = 0, error = 0, bound = 0;  ///< at index

    bool ok() const { return kind == Kind::agrees; }
};

/// Classifies non-finite values first, then requires |got - expected| <= bound, written so that NaN
/// fails. An exact value that is NaN or infinite accepts any non-finite result; Overflow widens
/// what a finite one accepts. The sign of zero is not compared. Reports the first non-finite
/// disagreement if there is one, else the worst value.
Comparison compare(const ref::ExpectedTensor& expected, std::span<const std::uint32_t> got,
                   ref::Dtype dtype);

/// The same for plain numbers: scalar identities and differences of two runs.
double error_ratio(double error, double bound);

}  // namespace attncheck::properties
