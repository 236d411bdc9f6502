// Which pairs of classes are possible: a long deterministic search for legal cases that have both.
// The generators' own cases come first; then cases with one class are crossed, field by field, with
// cases that have the other, and single fields are changed, which leaves what the generators make.
// A pair that no legal case of the search has is called excluded.
#pragma once

#include "properties/search/class_pairs.h"

namespace attncheck::properties {

struct SearchEffort {
    int draws = 0;      ///< cases of each property's generator
    int crossings = 0;  ///< for each pair that is still missing
};

/// The pairs that legal cases of the operator were found to have.
PairSet search_pairs(const Operator& op, const SearchEffort& effort);

/// A legal case as the engine draws it for the property; nullopt where 100 tries gave none.
std::optional<Spec> drawn_case(const Operator& op, const Property& property, std::uint64_t number);

}  // namespace attncheck::properties
