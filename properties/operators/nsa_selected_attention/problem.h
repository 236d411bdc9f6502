// Selected attention as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/attention_operator.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {

AttentionProblem selected_problem(SelectedParts parts);
/// The parts that make such a problem, its numbers among them.
SelectedParts selected_parts_of(const AttentionProblem& problem);

const AttentionOperator& selected_attention_operator();

}  // namespace attncheck::properties
