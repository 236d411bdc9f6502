// Rows of clause tables that are written, not found: orders of rules, and edges that a search by
// single edits does not tell apart.
#pragma once

#include <initializer_list>
#include <vector>

#include "properties/laws/clauses.h"

namespace attncheck::properties {

inline std::vector<ClauseEdge> with_rows(const std::vector<ClauseEdge>& found,
                                         std::initializer_list<ClauseEdge> written) {
    std::vector<ClauseEdge> all = found;
    all.insert(all.end(), written);
    return all;
}

}  // namespace attncheck::properties
