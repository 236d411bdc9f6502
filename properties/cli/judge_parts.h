// The neutral operators as somebody calls them: numbers that no field of a case has. A case draws
// its kv_length, its pages and a softcap of few digits from a seed; a given call has any.
#pragma once

#include "properties/cli/judge_given.h"
#include "properties/judge/attention_problem.h"

namespace attncheck::properties {

/// The call with the numbers that were left out at their usual values: scale 1 / sqrt(head_dim), no
/// softcap, no window, and the diagonal through the last query and the last key. Another operator's
/// is returned as it is: the two-phase functions have no defaults.
GivenCall with_usual_numbers(const Description& description, const GivenCall& given);

/// The call with arguments that a case may have: every key of attention in use, and the sequences
/// of attention_decode on pages of their own, one behind the other. Another operator's is returned
/// as it is, and so is a call whose shapes do not fit. Throws std::invalid_argument naming a length
/// or an entry that is out of range.
GivenCall as_a_case(const Description& description, const GivenCall& given);

/// True for attention and its gradient.
bool is_neutral(const Description& description);

/// Their problem with the bias, mask, sink and kv_length that are given; query, key and value are
/// left to the caller. `spec` is that of as_a_case().
AttentionProblem neutral_given(const Spec& spec, const GivenCall& given);

}  // namespace attncheck::properties
