// Calls of other operators, which `concurrent` makes at the same time as those of its own.
#pragma once

#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

/// Small legal calls of operators that the candidate has and that are not the case's own. A function
/// of the case's seed.
using CompanionCalls = std::vector<Call> (*)(const Spec& spec, const CandidateInfo& info);

/// Laws know no operator: the list of operators says once where companions come from.
void provide_companions(CompanionCalls calls);
std::vector<Call> companions_of(const Spec& spec, const CandidateInfo& info);

}  // namespace attncheck::properties
