#include "rounded_sums.h"

#include <cmath>

namespace attncheck::tiers {
double dot(Sums sums, const double* a, const double* b, std::int64_t count) {
    constexpr std::int64_t kParts = 16;
    if (sums != Sums::pairwise || count < kParts) {
        double sum = 0;
        for (std::int64_t d = 0; d < count; ++d) sum = add(sums, sum, a[d], b[d]);
        return sum;
    }
    double part[kParts] = {};
    for (std::int64_t d = 0; d < count; ++d) part[d % kParts] = add(sums, part[d % kParts], a[d], b[d]);
    for (std::int64_t step = kParts / 2; step > 0; step /= 2)
        for (std::int64_t k = 0; k < step; ++k) part[k] = as_float(part[k] + part[k + step]);
    return part[0];
}

/// Veltkamp's splitting for normal numbers, the oracle's conversion near zero and beyond.
double store(ref::Dtype dtype, double x) {
    if (dtype == ref::Dtype::fp32) return as_float(x);
    const bool half = dtype == ref::Dtype::fp16;
    const double size = std::fabs(x);
    if (!(size >= (half ? 0x1p-14 : 0x1p-126) && size < (half ? 65504 : 0x1p127)))
        return ref::decode(dtype, ref::encode(dtype, x));
    const double spread = x * (half ? 0x1p42 + 1 : 0x1p45 + 1);
    return spread - (spread - x);
}

double as_factor(ref::Factor factor, double x) {
    const auto bf16 = [](double y) { return store(ref::Dtype::bf16, y); };
    switch (factor) {
        case ref::Factor::fp32:
            return x;
        case ref::Factor::bf16:
            return bf16(x);
        case ref::Factor::tf32: {  // to 11 bits: Veltkamp's splitting
            const double spread = x * (0x1p42 + 1);
            return spread - (spread - x);
        }
        case ref::Factor::tf32_truncated: {
            const double nearest = as_factor(ref::Factor::tf32, x);
            return std::fabs(nearest) > std::fabs(x) ? nearest - std::copysign(std::ldexp(1, std::ilogb(x) - 10), x) : nearest;
        }
        case ref::Factor::bf16x2:
            return bf16(x) + bf16(x - bf16(x));
        case ref::Factor::bf16x3: {
            const double high = bf16(x), middle = bf16(x - high);
            return high + middle + bf16(x - high - middle);
        }
    }
    return x;
}

}  // namespace attncheck::tiers
