// Full size: the gradients of a bias and of sinks, whose elements are sums over many rows.
#pragma once

#include "properties/judge/sampled_attention.h"

namespace attncheck::properties {

/// Elements of the bias that are compared: both sides of every power of two, the last ones, and
/// others at random. None where dbias is no output, or its operator lists no columns of them.
std::vector<std::int64_t> chosen_bias_elements(const FullSizeAttention& of);

/// dsink of every head, and dbias of chosen elements. First tier. A verdict that holds says in its message what was
/// compared. A kernel with a forward of its own (forward=own, or no statistics) is left out.
Verdict judge_sampled_sums(const FullSizeAttention& of, const Call& call, const CallResult& result,
                           const PropertyContext& context);

}  // namespace attncheck::properties
