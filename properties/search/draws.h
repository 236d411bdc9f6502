// rapidcheck as the engine uses it: it draws the seeds of cases, and walks from a failing case down
// its neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/search/walk.h"

namespace attncheck::properties {

struct Drawn {
    std::uint64_t seed = 0;
    int size = 0;  ///< 0..100
};

/// A round of cases, drawn ahead: a search stops between any two of its cases and goes on later.
std::vector<Drawn> draws_of_round(const std::string& id, std::uint64_t seed, int cases);

/// To the local minimum, from the case that the walk began with.
void walk_down(Walk& walk, KnownMinima& known, std::uint64_t seed, const std::string& id);

}  // namespace attncheck::properties
