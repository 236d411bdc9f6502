// The effect of rounding on NsaCompress and its gradient on data of zero mean: the model of the second
// and third tier (ref/attention/rounding_noise.h).
#pragma once

#include <span>

#include "ref/attention/rounding_noise.h"
#include "ref/operators/nsa_compress.h"

namespace attncheck::ref {

RoundingNoise nsa_compress_noise(const CompressShape& shape, const Precision& precision,
                                 std::span<const double> input, std::span<const double> weight);

struct CompressGradNoise {
    RoundingNoise input_grad, weight_grad;
};
CompressGradNoise nsa_compress_grad_noise(const CompressShape& shape, const Precision& precision,
                                          std::span<const double> output_grad,
                                          std::span<const double> input,
                                          std::span<const double> weight);

}  // namespace attncheck::ref
