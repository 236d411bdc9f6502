// What the cases of a property say in the end, for whole runs and for merged shards alike.
#pragma once

#include <cstdint>

#include "properties/judge/bound_evidence.h"
#include "properties/report/results.h"

namespace attncheck::properties {

inline constexpr const char* kComparing = "agreement";  ///< compares the elements of every output

/// Share of elements without a bound, above which a property is not shown as held.
double most_unjudged(const ref::RoundingClass& rounding);

/// Status and note of a property without a failure, from its counts: one that met fewer than `needed` cases says nothing,
/// nor does agreement that compared no element, where elements are counted: another tolerance (--rule) counts none.
void conclude(PropertyReport& report, std::int64_t needed, double most_unjudged, bool counts_elements);

/// About how long a run like this one takes to meet the cases that its inconclusive properties lack, in seconds; 0: it is
/// not time that they lack.
std::int64_t sufficient_time(const RunReport& report);

}  // namespace attncheck::properties
