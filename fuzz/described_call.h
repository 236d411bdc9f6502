// Calls of any operator of the catalogue, by its description alone.
//
// Head    its first two bytes choose one of a thousand legal calls that the operator's own generator
//         draws, its gradient's among them
// Change  what: an edit that validation tries (of the operator's groups, `which` and `argument`), a
//         tensor's extent, rank, dtype, stride, presence or whole shape, an array's value, size or
//         presence, one value more of it, an integer, a real number, a text, an element of a list
//
// Edits come first, in their order: they change what follows from a legal case. Kinds that the
// operator lacks do nothing. Lists, whose elements the validators read, have memory of exactly the
// size that they span.
#pragma once

#include <string_view>

#include "fuzz/fuzzed_call.h"

namespace attncheck::fuzz {

/// The family as in fuzzed_case.h.
std::unique_ptr<FuzzedCall> described_call(std::string_view family, const CallBytes& bytes);

}  // namespace attncheck::fuzz
