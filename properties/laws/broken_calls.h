// Calls with illegal arguments, as validation and the properties of later calls make them.
#pragma once

#include <optional>

#include "properties/case/call.h"
#include "properties/case/spec.h"
#include "ref/constraints/constraints.h"

namespace attncheck::properties {

/// The call of a case with its edits. Legality of a broken call has one answer; building it can only
/// fail when an edit names nothing (any more): nullopt.
std::optional<Call> broken_call(const Spec& spec);

/// An edit of an output that is not passed, or a ruling on it: the candidate sees neither.
bool concerns_withheld(const Spec& spec, const Call& call, const ref::Ruling& ruling);

/// The case with one illegal argument, the same one at every replay; nullopt: none was found.
std::optional<Spec> rejected_neighbour(const Spec& spec);

}  // namespace attncheck::properties
