// Errors that many elements of a result have in common, so that a filter, which adds up many elements, adds them up, too.
// Q and K are rounded as the scale is multiplied into them: an element of K has one error in all rows that see its key, and
// one of Q in all keys of its row. So the errors of results are sums of few numbers where queries, keys or channels are
// few. A gradient reads one LSE for all keys of a row, and rounds it in units of 2 or e; delta is one number as well.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

enum class Result : std::uint8_t { output, row_max, row_sum, lse, query_grad, key_grad, value_grad, bias_grad };

/// A sum of the elements of a result, each times its weight.
struct WeightedResult {
    Result result;
    std::span<const double> weight;  ///< [rows, width] of the result, or of the chosen rows
    /// t * N1 + n of query rows, or j * N2 + n of keys; nothing: all.
    std::optional<std::span<const std::int64_t>> chosen = std::nullopt;
};

/// Variance of such a sum that these roundings cause, to first order. With A = d sum / d x it is, over all elements x
/// of Q and K,
///
///   sum (u^2 x^2 / 3 + eta^2 / scale^2) A^2
///
/// with u of the type they are scaled in. Of a gradient, over its rows with A = d sum / d LSE and d sum / d delta, also
///
///   sum 4 u^2 (m^2 + (log l)^2) A^2 + sum var(delta) A^2
///
/// Of a gradient dQ = scale dS' K may read the rounded K, dK = scale dS'^T Q the rounded Q. The forward is the given one,
/// or with forward=own rounded likewise, which doubles the variance of its own and of the other part: both may have the
/// same errors; what its row sums and delta take is in RoundingNoise::shared. The forward inputs alone are read for
/// results of the forward.
double common_error_variance(const AttentionBackward& backward, const Precision& precision,
                              const WeightedResult& sum);

/// The relative error that all elements of a tensor have in common when they are multiplied and rounded so: the mean
/// weighted with x^2, as a product with many such elements has it. The largest one over the factors scale and its root,
/// with log2 e or without, but at least u / 32: of factors drawn at random nine in ten have less on normal data (0.031 u in
/// bf16, 0.007 u in fp16); more of it is in factors next to a power of two.
double common_scaling_error(std::span<const double> values, double scale, Dtype dtype);

}  // namespace attncheck::ref
