// Variances of single roundings and of sums under a rounding class; see rounding_noise.h for the
// model.
#pragma once

#include <algorithm>
#include <cmath>

#include "ref/attention/attention_roundoff.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {

struct RoundingVariance {
    double sum;        ///< u of a partial sum
    double unit;       ///< u of a single operation
    bool truncating;   ///< sums err towards zero
    double cast;       ///< relative variance of a cast to the storage type
    double underflow;  ///< absolute variance of a cast near zero
    bool rounds_prob, rounds_score_grad, rounds_sum;
    std::int64_t least_tile;  ///< keys that a tile takes at least

    RoundingVariance(Dtype storage, const RoundingClass& rounding)
        : sum(accumulator_roundoff(rounding, storage)),
          unit(std::max(sum, 0x1p-24)),
          truncating(rounding.accumulator_roundoff > 0x1p-24),
          cast(unit_roundoff(storage) * unit_roundoff(storage) / 3),
          underflow(half_ulp(storage, 0) * half_ulp(storage, 0) / 3),
          rounds_prob(rounding.prob_rounded),
          rounds_score_grad(rounding.score_grad_rounded),
          rounds_sum(rounding.row_sum_rounded),
          least_tile(rounding.least_tile) {}

    /// Of a sum of `terms` numbers of either sign, in units of the sum of their squares: the
    /// partial sums S_k have E S_k^2 = k t^2, every one is rounded with variance (u S_k)^2 / 3.
    /// Truncation errs by u |S_k| / 2 towards zero, together at most u n sqrt(n) t / 3.
    double of_sum(double terms) const {
        return sum * sum * (1.0 / 3 + terms / 6 + (truncating ? terms * terms / 9 : 0));
    }
    /// Of a sum of `terms` numbers of one sign, in units of its square: S_k = k S / n.
    double of_positive_sum(double terms) const {
        return sum * sum * (1.0 / 3 + terms / 9 + (truncating ? terms * terms / 16 : 0));
    }
    /// Relative errors that all elements may share: exp, log2 e and reciprocals; what truncation
    /// takes from `terms` additions, half a unit each.
    double coherent(double terms) const { return 16 * unit + (sum > 0x1p-24 ? terms * sum : 0); }
    double stored(Dtype dtype, double value) const {
        const double half = half_ulp(dtype, std::fabs(value));
        return half * half / 3;
    }
};

inline double square(double x) { return x * x; }

/// Tiles whose last, incomplete or complete, one has a probe.
inline constexpr std::int64_t kProbedTiles[] = {16, 32, 64, 128};

/// True if the row is in the last tile of its sequence and that is not its only one.
inline bool in_last_tile(const SequencePlace& place, std::int64_t tile) {
    return place.length > tile && place.position >= (place.length - 1) / tile * tile;
}

/// Adds a probe for every tile that cuts some sequence.
void add_tile_probes(RoundingNoise& noise, std::span<const SequencePlace> places);

/// The probe of a defect, or null.
Probe* find_probe(RoundingNoise& noise, Defect defect, std::int64_t tile = 0);

/// x^2, 0 where it is not finite.
std::vector<double> finite_squares(std::span<const double> values);

/// Puts the probe of a relative error first.
void add_gain(RoundingNoise& noise);

template <class Scalar>
struct SharedRows;

/// Columns whose key is in the last tile of its sequence.
std::vector<std::int64_t> columns_in_last_tile(const SharedRows<double>& rows,
                                               std::span<const SequencePlace> key_places,
                                               std::int64_t tile);

}  // namespace attncheck::ref
