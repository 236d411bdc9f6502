// The clause tables of the operators: text in operators/FOLDER/clauses.txt, which
// attncheck_clause_search writes, and in operators/FOLDER/clauses_by_hand.txt for rows that a search
// by single edits does not find. The build embeds them (case/embedded_tables.h).
//
//   # a comment
//   lse: # (fp32) | of the same size                the clause; "(a legal case)" for a field's limit
//     attention_merge{dtype=fp16 parts=0 ...}       a case without edits
//       lse.dtype=3 -> lse.dtype=0                  edits that the clause rejects -> that are accepted
//       lse.dtype=2                                 another edge of the same case, no accepted side
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/laws/clauses.h"

namespace attncheck::properties {

/// The rows of a table in its order; they point into `text`. Throws std::invalid_argument that names
/// the line on text of another form.
std::vector<ClauseEdge> read_clauses(std::string_view text);

/// A table as text, for read_clauses.
std::string print_clauses(std::span<const ClauseEdge> rows);

/// The rows of all tables, folder by folder, found ones first. An operator without a table has none:
/// the search that writes the first one needs the operator.
const std::vector<ClauseEdge>& all_clauses();

}  // namespace attncheck::properties
