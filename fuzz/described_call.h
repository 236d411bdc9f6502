// Calls of an operator of the catalogue, by its description alone. Its validators may read no
// element of a tensor: lists of blocks need a reader that gives them memory.
//
// Head    seed of the operator's own generator, so that the call is legal before it is changed
// Change  what: a tensor's extent, rank, dtype, stride or presence; an array's value, size or
//         presence; an integer; a real number; a text. Kinds that the operator lacks do nothing.
#pragma once

#include <string_view>

#include "fuzz/fuzzed_call.h"

namespace attncheck::fuzz {

/// The family as in fuzzed_case.h.
std::unique_ptr<FuzzedCall> described_call(std::string_view family, const CallBytes& bytes);

}  // namespace attncheck::fuzz
