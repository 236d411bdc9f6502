// What the roundings of rows that share their keys do to their scores and row sums: the noise of the forward and of
// the gradients has it in common.
#pragma once

#include <span>
#include <vector>

#include "ref/attention/rounding_variance.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

/// x^2, 0 where it is not finite.
std::vector<double> finite_squares(std::span<const double> values);

/// [rows of a, rows of b]: an upper estimate of what <a, b>^2 loses where numbers below `flush` are
/// read as 0: |a'|^2 |b|^2 + |a|^2 |b'|^2 with a' and b' the numbers that are lost.
Array flushed_products(const Rows& a, const Rows& b, double flush);

/// Squared relative errors of P from the variances of its logits: these, as long as errors are small. The error of a stored
/// logit of 1000 is 4 of bf16, which moves P by e^4; two of them differ by at most 2 sqrt(3) deviations.
Array as_relative_errors(Array omega);

/// Variances [g,c] of scores, scale Q K^T without softcap and bias.
class ScoreNoise {
public:
    ScoreNoise(const AttentionForward<double>& forward, const RoundingVariance& of);

    /// Their products with sum and scale, and what is lost near zero. sum (q k)^2 is taken as 2 |q|^2 |k|^2 / D.
    Array of_sums(const SharedRows<double>& rows) const;

    /// Of logits that are stored, of `scores` on the way to a softcap as well, and of its tanh (tanh=N).
    Array of_stored(const SharedRows<double>& rows, const Array& scores, const Array& logits) const;
    /// [rows,columns]: the same of c tanh(scores / c) alone, before it is stored.
    Array of_caps(const Array& scores, std::int64_t rows, std::int64_t columns) const;

    /// Q and K as they are scaled, half of it each; only where they are.
    Array of_scaling(const SharedRows<double>& rows) const;

private:
    double scale_, dim_, cap_;
    const RoundingVariance& of_;
    Eigen::VectorXd key_squares_;  ///< [T2,N2]: |k|^2
};

inline constexpr double kDominant = 0.5;  ///< P of a key or sink that outweighs all others

/// Standard deviation of the logits of every row, at most 1, without a dominant one: how far its P spread, in units of
/// themselves.
Eigen::ArrayXd spreads_of(const Array& logits, const Array& probs);

/// What terms next to a much larger one, such as a sink, lose of a row sum where they err alike; relative.
Eigen::ArrayXd sum_lost_alike(const Array& probs, const Eigen::ArrayXd& spreads,
                              const RoundingVariance& of);

/// Relative error of 1 / keep_prob as the cast of P rounds it; 0 where that is nothing.
double kept_cast_error(const RoundingVariance& of, double keep_prob);

/// [g,c]: what the cast of P / keep_prob does to P where P is 1, which is the same number in all rows: before P is divided by
/// the row sum that of every key that is the largest of those before it, in either order of the keys; that of a key
/// alone where P is `normalised`. Of all keys where their logits spread over few steps. Empty: nothing.
Array kept_alike(const Array& probs, const Eigen::ArrayXd& spreads, const RoundingVariance& of, double keep_prob,
                 bool normalised);

/// [T1,N1]: variances of <dO, O>, with its cast where there is one; of the `deltas` that row_deltas gives.
Eigen::ArrayXd delta_variances(const AttentionBackward& backward, const Eigen::ArrayXd& deltas,
                               const RoundingVariance& of);

}  // namespace attncheck::ref
