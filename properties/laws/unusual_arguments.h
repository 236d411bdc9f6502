// The law of legal arguments without effect: validation sees that they are accepted, this law that
// the values stay right.
#pragma once

#include <vector>

#include "properties/laws/call_properties.h"

namespace attncheck::properties {

/// The changes of a case's arguments that are legal and change no result, by the contract.
using EffectlessEdits = std::vector<Edit> (*)(const Spec& spec);

/// A window that hides nothing of `reach` keys, in other numbers.
void add_unlimited_windows(const char* window, std::int64_t reach, std::vector<Edit>& out);

/// Arguments that the contract says have no effect have none.
/// Why     contract.md 8: a kernel must not read what the contract does not let decide.
/// Domain  every legal case with such an argument; one to three of them are drawn from the seed.
/// Bound   that of agreement.
/// Kills   FA-x304 FAG-x302: tokens that hide although there is no mask; AT-x301 AD-x301: windows in 32 bits.
/// Shrinks to the smallest case that has the argument.
Property unusual_arguments_property(const MakeProblem& problem, EffectlessEdits edits);

}  // namespace attncheck::properties
