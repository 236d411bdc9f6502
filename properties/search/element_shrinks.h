// Neighbours of a case whose values are written out: fewer elements, simpler values, simpler places.
#pragma once

#include <memory>

#include "properties/search/neighbour_list.h"

namespace attncheck::properties {

/// Shares the case with the neighbours.
void add_element_neighbours(const std::shared_ptr<const Spec>& of, const Operator& op,
                            NeighbourList& out);

}  // namespace attncheck::properties
