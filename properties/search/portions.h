// The cases of one property in portions that do not depend on each other: what a run divides over machines.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/search/engine.h"

namespace attncheck::properties {

/// One of the portions of a property. It has seeds and clauses of its own, and learns the candidate's scope anew.
struct Portion {
    int number = 0, of = 1;
    std::int64_t wanted = 0;  ///< cases; 0: as many as the time allows
    std::int64_t before = 0;  ///< cases that the portions before it want
};

/// Cases that are asked for; 0: as many as the time allows.
std::int64_t wanted_cases(const Property& property, const EngineOptions& options);

/// How many portions the property has for all shards together. A run without a number of cases has one for each shard.
int portions_of(const Property& property, const EngineOptions& options);

/// Those of this shard, in their order: every shard has some of a large property, one has the whole of a small one.
std::vector<Portion> own_portions(const Property& property, const EngineOptions& options);

/// The shard that has the first portion replays given cases.
bool has_first_portion(const EngineOptions& options);

}  // namespace attncheck::properties
