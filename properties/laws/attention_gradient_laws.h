// The laws of attention gradients, each written once against AttentionOperator.
#pragma once

#include <vector>

#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"

namespace attncheck::properties {

Verdict linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict output_grad_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

/// Every law above as a property. `of` outlives the list.
void add_attention_gradient_laws(std::vector<Property>& list, const AttentionOperator& of);

}  // namespace attncheck::properties
