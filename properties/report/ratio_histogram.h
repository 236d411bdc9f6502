// How many cases had their worst error where, in units of the bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace attncheck::properties {

/// Cases by worst error over bound, four bins for each factor of two: what a kernel does to its
/// bound shows in the shape, which the largest ratio alone hides. The property `deviation` counts
/// its worst statistic over the limit of that statistic.
struct RatioHistogram {
    static constexpr int kPerDoubling = 4, kExact = -100, kInfinite = 100;
    std::map<int, std::int64_t> cases;  ///< by bin; only those that have some

    /// Bin k has the ratios from 2^(k/4) up to 2^((k+1)/4); the first one has 0 and what is smaller
    /// than 2^-25, the last one what is larger than 2^25 or no number.
    static int bin_of(double ratio) {
        if (!std::isfinite(ratio)) return kInfinite;
        if (!(ratio > 0)) return kExact;
        const double bin = std::floor(kPerDoubling * std::log2(ratio));
        return static_cast<int>(std::clamp(bin, double{kExact}, double{kInfinite}));
    }
    static double lower_edge(int bin) { return bin == kExact ? 0 : std::exp2(bin / double{kPerDoubling}); }
    void add(double ratio) { ++cases[bin_of(ratio)]; }
    void add_all(const RatioHistogram& other) {
        for (const auto& [bin, count] : other.cases) cases[bin] += count;
    }
};

}  // namespace attncheck::properties
