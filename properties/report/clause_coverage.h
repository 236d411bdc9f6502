// Clauses of the documented constraints that decided a call, and how shards of a run add up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/report/json_parts.h"
#include "properties/report/results.h"

namespace attncheck::properties {

/// {"reached", "possible", "missing": [...], "outside": [...], "through"}
Json clauses_json(const ClauseCoverage& clauses);

/// Throws Json::exception, or std::runtime_error when the numbers do not fit each other.
ClauseCoverage clauses_from(const Json& json);

/// Coverage of two shards: a clause decided a call when it did in one of them, and no call could
/// break it when none could in both. Throws std::runtime_error when they count other clauses.
ClauseCoverage joined(const ClauseCoverage& left, const ClauseCoverage& right);

/// What the entry "required_clauses" says.
struct ClauseVerdict {
    PropertyReport::Status status = PropertyReport::Status::held;
    std::string note;
};

/// `declined`: how many calls the candidate declined, which excuses a clause that decided none.
/// `missing_parts` of a sharded run may have decided any.
ClauseVerdict verdict_on(const ClauseCoverage& clauses, std::int64_t declined, int missing_parts);

}  // namespace attncheck::properties
