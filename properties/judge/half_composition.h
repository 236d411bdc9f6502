// What a composition of matrix products loses that stores every intermediate result in the storage
// type: softmax(scale Q, K^T) V and its automatic gradient, as a framework runs them without a
// fused kernel. FlashAttention's own tests allow a multiple of this (verification.md 2.6).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "properties/judge/attention_problem.h"
#include "ref/operators/nsa_compress.h"

namespace attncheck::properties {

/// Largest error of every output tensor, by name. Sums are exact: what the stored intermediates
/// lose is far larger than what fp32 accumulation does. Statistics have no counterpart and are left
/// out.
using CompositionErrors = std::map<std::string, double>;

/// attention_out, or dq, dk, dv; the statistics and the output that a gradient was given are not
/// used, a framework's gradient has its own.
CompositionErrors half_composition_errors(const AttentionProblem& problem);

/// output, or with an output gradient input_grad, weight_grad: products stored, their sums stored.
CompositionErrors half_composition_errors(const ref::CompressShape& shape, ref::Dtype dtype,
                                          std::span<const double> input,
                                          std::span<const double> weight,
                                          std::optional<std::span<const double>> output_grad = {});

}  // namespace attncheck::properties
