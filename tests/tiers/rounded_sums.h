// Sums, stored numbers and factors as a rounding class has them.
#pragma once

#include <bit>
#include <cstdint>

#include "rounding_emulator.h"

namespace attncheck::tiers {

inline float as_float(double x) { return static_cast<float>(x); }

/// The 24 leading bits of a number.
inline double cut(double x) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~((std::uint64_t{1} << 29) - 1));
}

/// sum + a * b as the class adds.
inline double add(Sums sums, double sum, double a, double b) {
    switch (sums) {
        case Sums::fp64:
            return sum + a * b;
        case Sums::truncating:
            return cut(sum + a * b);
        case Sums::fused:
            return as_float(sum + a * b);
        default:
            return as_float(as_float(sum) + as_float(as_float(a) * as_float(b)));
    }
}

double dot(Sums sums, const double* a, const double* b, std::int64_t count);

/// Nearest number of the type.
double store(ref::Dtype dtype, double x);

/// An fp32 number on its way into a product.
double as_factor(ref::Factor factor, double x);

}  // namespace attncheck::tiers
