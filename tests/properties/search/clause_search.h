// The long search behind operators/OPERATOR/clauses.txt: which clauses of the documented constraints
// decide any call, and the smallest calls at their edges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/laws/clauses.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

struct FoundEdge {
    Spec broken;
    std::optional<Spec> legal;  ///< none that is small enough to run
};

struct FoundClause {
    std::string name;
    std::int64_t decided = 0;  ///< calls of the search
    std::vector<FoundEdge> edges;
};

/// Draws cases of the property `validation` for so many seconds, applies every edit to each, and
/// some pairs of edits. Rarest clauses first.
std::vector<FoundClause> search_clauses(const Operator& op, double seconds);

/// Legal cases of each number at its smallest and its largest value, with an edit that changes
/// nothing; those that are small enough to run.
std::vector<Spec> search_limits(const Operator& op, int draws);

/// Elements of all tensors of the call of a case.
std::int64_t elements_of(const Spec& spec);

}  // namespace attncheck::properties
