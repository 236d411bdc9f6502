// What a wrong attention kernel may have computed instead: other masks, other heads, other scales.
// Evaluated after a failure only, to name it.
#pragma once

#include "properties/judge/attention_tiers.h"

namespace attncheck::properties {

/// Hypotheses about `problem`, of which they hold one copy.
std::vector<Hypothesis> attention_hypotheses(const AttentionProblem& problem);

}  // namespace attncheck::properties
