// Numbers with the same rounding error: nearly equal ones, or ones at the same place between two representable numbers.
// An example are the sums of dV over few queries next to a large sink, nearly equal for all keys. Their roundings are one
// error, not one for each.
#pragma once

#include <cstdint>
#include <span>

#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {

/// The multiple of two half steps, a power of two, that is next to x.
double stored_on_grid(double x, double half_step);

/// Counts what the roundings of x_c to `dtype`, each times `factor` [width] in the row places[c] of the tensor,
/// have in common (RoundingNoise::shared, truncated). The error e of a number is a function of its place between
/// two points of the grid, a sawtooth of half step h. Over all offsets of the grid its Fourier series gives
///
///   Var sum_c w_c e(x_c) = sum_n 2 h^2 / (pi n)^2 |sum_c w_c exp(i pi n x_c / h)|^2
///
/// which is (sum w)^2 h^2 / 3 for equal numbers and sum w^2 h^2 / 3 for places at random, which the variances of
/// the elements have already. Of the first four n those are counted with |sum_c exp(i pi n x_c / h)|^2 > 9 times the
/// number of numbers: by chance one in exp(9) = 8000. The second and fourth are of sums of numbers on a finer grid.
void add_close(RoundingNoise& noise, std::span<const std::int64_t> places,
               std::span<const double> numbers, Dtype dtype, std::span<const double> factor);

}  // namespace attncheck::ref
