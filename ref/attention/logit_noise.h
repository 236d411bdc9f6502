// Predicted rounding errors of the gradients of biases and sinks; see rounding_noise.h for the
// model and logit_gradients.h for the sums.
#pragma once

#include <vector>

#include "ref/attention/rounding_variance.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

class LogitNoise {
public:
    /// keep_prob: dS may be cast before it is divided by it.
    LogitNoise(std::size_t elements, Dtype dtype, const RoundingVariance& of, double keep_prob)
        : dtype_(dtype), of_(of), keep_(1 / keep_prob), value_(elements), own_(elements), squares_(elements),
          alike_(elements), given_(elements), terms_(elements) {}

    /// dS of rows, by the places of their columns. own: variance of dS but for its cast and the part
    /// of delta; delta's error is one number for a row, whose pairs of one element share it.
    /// of_given: the part of it that the rounding of the given output has in the value, where a kernel
    /// goes by an output of its own; empty: it goes by the given one. A sum over all keys of a row, 0 but for that, is
    /// another number then, so that any part of the value may be missing.
    void add_bias(const SharedRows<double>& rows, const Array& ds, const Array& own,
                  const Array& prob, const Eigen::ArrayXd& delta_variance, const Eigen::ArrayXd& of_given);
    /// A term of an element, with the variance that it has but for its cast.
    void add(std::size_t element, double term, double variance);

    /// An error that all terms of an element have in common.
    void add_alike(std::size_t element, double error) { alike_[element] += error; }

    RoundingNoise finish() const;

private:
    Dtype dtype_;
    const RoundingVariance& of_;
    double keep_;
    std::vector<double> value_, own_, squares_;
    std::vector<double> alike_;  ///< sum of the errors that its terms may share
    std::vector<double> given_;  ///< variance of the value by the rounding of the given output
    std::vector<double> terms_;
};

}  // namespace attncheck::ref
