// Decoding as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {

AttentionProblem decode_problem(DecodeParts parts);
/// The problem of a case.
AttentionProblem decode_inputs(const Spec& spec);
DecodeParts decode_parts(const Spec& spec);

const AttentionOperator& decode_operator();

/// The rows of the cache of one sequence, in the order of positions, on pages of its own; queries
/// as they are.
DecodeParts alone_on_own_pages(const DecodeParts& parts, std::size_t sequence);

void add_decode_laws(std::vector<Property>& list);
Property split_keys_law();

}  // namespace attncheck::properties
