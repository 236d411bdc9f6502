// What the reference says of a case, for those who show it instead of judging by it.
#pragma once

#include <optional>

#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

/// Expected values and their bounds by output; nullopt for operators whose expectation depends on
/// what was computed before (lists of blocks, compositions).
std::optional<ExpectedOutputs> expected_values(const Operator& op, const Spec& spec,
                                               const ref::RoundingClass& rounding);

}  // namespace attncheck::properties
