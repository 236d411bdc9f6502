// Selected attention as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/attention_parts.h"
#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {

AttentionProblem selected_problem(SelectedParts parts);
/// The problem of a case without the statistics and attention output of a gradient, which cost as
/// much as the reference forward.
AttentionProblem selected_inputs(const Spec& spec);

const AttentionOperator& selected_attention_operator();

void add_selected_list_relations(std::vector<Property>& list);
Property selected_as_attention_law();

}  // namespace attncheck::properties
