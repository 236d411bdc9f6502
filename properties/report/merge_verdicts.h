// Verdicts that are of all shards together: enough cases, required classes, clauses of the contract.
#pragma once

#include "properties/report/json_parts.h"

namespace attncheck::properties {

/// Judges the properties of merged reports by the sums of their counts, and puts them in the order of the whole run.
void judge_merged(Json& merged);

}  // namespace attncheck::properties
