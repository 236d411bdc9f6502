// The laws of attention, each written once against AttentionOperator. A new operator calls
// add_attention_laws and has them all.
#pragma once

#include <vector>

#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"

namespace attncheck::properties {

// Of both directions.
Verdict power_of_two(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict value_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

// Of the forward.
Verdict statistics(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

/// Every law above that holds for this direction, and those of attention_gradient_laws.h, as
/// properties. `of` outlives the list.
void add_attention_laws(std::vector<Property>& list, const AttentionOperator& of, bool gradient);

/// agreement on data whose probabilities are exact; `adapt` makes such data, `domain` knows it.
void add_exact_lattice(std::vector<Property>& list, const AttentionOperator& of,
                       void (*adapt)(Spec&, Random&), bool (*domain)(const Spec&));

/// The second and third tier (judge/attention_tiers.h); `adapt` makes a case that they can judge.
Property deviation_property(const AttentionOperator& of, void (*adapt)(Spec&, Random&));

}  // namespace attncheck::properties
