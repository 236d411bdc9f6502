// FlashAttention as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/attention_operator.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {

AttentionProblem flash_problem(FlashParts parts);
/// The parts that make such a problem, its numbers among them.
FlashParts flash_parts_of(const AttentionProblem& problem);

const AttentionOperator& flash_attention_operator();

}  // namespace attncheck::properties
