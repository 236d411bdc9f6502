// Simpler neighbours of a Spec. Every one is legal and lowers complexity(), so taking any failing
// neighbour until none fails ends in a 1-minimal case; the list itself is what a certificate
// counts.
//
// Order: what usually works first. While values come from a recipe: extents and features, then
// simpler recipes, then the same data written out as overrides. Once written out: remove elements
// (delta debugging, Zeller 2002), simplify values and positions, and again every extent.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// A neighbour, built when it is looked at; nullopt when it is not legal, not smaller or outside
/// the property's domain.
using Neighbour = std::function<std::optional<Spec>()>;

/// domain may be empty.
std::vector<Neighbour> neighbours(const Spec& spec, const Operator& op,
                                  const std::function<bool(const Spec&)>& domain);

/// The same data with every non-zero element as an override; nullopt when that would be more than
/// max_elements.
std::optional<Spec> written_out(const Spec& spec, const Operator& op, std::size_t max_elements);

}  // namespace attncheck::properties
