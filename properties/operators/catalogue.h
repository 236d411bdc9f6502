// The operators the suite knows. For those who start from a name that a person or a file gave: the
// command line and the corpus. Everybody else is passed the Operator.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// In the order they are reported.
const std::vector<std::unique_ptr<Operator>>& operators();
const Operator* find_operator(std::string_view name);
std::vector<const Schema*> schemas();
/// See CompanionCalls.
std::vector<Call> companion_calls(const Spec& spec, const CandidateInfo& info);

}  // namespace attncheck::properties
