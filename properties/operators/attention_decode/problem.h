// Decoding as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {

AttentionProblem decode_problem(DecodeParts parts);
AttentionProblem decode_inputs(const Spec& spec);

const AttentionOperator& decode_operator();

/// The same sequences on pages of this size, one behind the other, none of them shared; slots of no
/// sequence hold `rest`.
DecodeParts on_own_pages(const DecodeParts& parts, std::int64_t page_size, std::uint32_t rest = 0);

std::vector<Misreading> decode_misreadings(const AttentionProblem& problem);
void add_decode_laws(std::vector<Property>& list);
Property split_keys_law();
Property last_rows_law();

}  // namespace attncheck::properties
