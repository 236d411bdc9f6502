// Directions in which defects move a tensor of outputs (rounding_noise.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {

/// Tiles whose last, incomplete or complete, one has a probe.
inline constexpr std::int64_t kProbedTiles[] = {16, 32, 64, 128};

/// True if the row is in the last tile of its sequence and that is not its only one.
inline bool in_last_tile(const SequencePlace& place, std::int64_t tile) {
    return place.length > tile && place.position >= (place.length - 1) / tile * tile;
}

/// Adds a probe for every tile that cuts some sequence.
void add_tile_probes(RoundingNoise& noise, std::span<const SequencePlace> places);

/// Counts errors that are up to `part` times the direction of a probe: those that all logits share
/// err as a wrong scale does, a stored delta as a wrong row term.
void add_coherent(RoundingNoise& noise, Defect defect, double part);

/// Factors that are cut make every product smaller: adds what that does, of the value, of the logits and of delta, to all
/// variances. `cut` is the square of the relative error.
void add_cut(RoundingNoise& noise, double cut);

/// The probe of a defect, or null.
Probe* find_probe(RoundingNoise& noise, Defect defect, std::int64_t tile = 0);

/// Puts the probe of a relative error first.
void add_gain(RoundingNoise& noise);

template <class Scalar>
struct SharedRows;

/// Columns whose key is in the last tile of its sequence.
std::vector<std::int64_t> columns_in_last_tile(const SharedRows<double>& rows,
                                               std::span<const SequencePlace> key_places,
                                               std::int64_t tile);

}  // namespace attncheck::ref
