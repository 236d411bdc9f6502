// Attention laws of channels and of the scale. Each is a statement about two calls; bounds are those
// of the two runs.
#pragma once

#include "properties/laws/attention_run.h"

namespace attncheck::properties {

Verdict channel_permutation(const AttentionOperator& of, const Spec& spec,
                            PropertyContext& context);
Verdict scale_folding(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

}  // namespace attncheck::properties
