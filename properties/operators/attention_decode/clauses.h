#pragma once

#include <vector>

#include "properties/laws/clauses.h"

namespace attncheck::properties {

const std::vector<ClauseEdge>& attention_decode_clauses();

}  // namespace attncheck::properties
