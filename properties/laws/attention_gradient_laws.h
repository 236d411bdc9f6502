// The laws of attention gradients, each written once against AttentionOperator.
#pragma once

#include <vector>

#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"

namespace attncheck::properties {

// Sums over a sequence (attention_identities.cc).
Verdict value_sum(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict key_sum(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict euler(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

// The gradient and the forward (attention_adjoint.cc).
Verdict adjoint(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict forward_backward(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

/// Every law above as a property, and those of the output gradient and of what the gradient is given; `has_pair`: the statistics are row_max and row_sum. `of` outlives
/// the list.
void add_attention_gradient_laws(std::vector<Property>& list, const AttentionOperator& of,
                                 bool has_pair);

}  // namespace attncheck::properties
