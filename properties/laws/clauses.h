// Clauses of the documented constraints and calls at their edges. Edits that are drawn at large
// break a clause that applies under two conditions about once in 500 calls; a validator that gets
// this clause wrong would survive most runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "ref/constraints/constraints.h"

namespace attncheck::properties {

/// A clause (Ruling::clause) with a case on each side of its edge, as found by a long search
/// (attncheck_clause_search): rarest clauses first, one or more edges of each. Rows of other
/// operators of the family may be among them.
struct ClauseEdge {
    std::string_view op;
    std::string_view clause;  ///< empty: a legal case of a field at its limit
    std::string_view base;    ///< case line without edits
    std::string_view broken;  ///< edits, as in `break=[...]`, of a call that the clause rejects;
                              ///< of a legal case one that changes nothing
    std::string_view legal;   ///< of an accepted call nearest to it; empty: none that is small
};

/// The documented ruling on the call of a case; nullopt when an edit names nothing of it.
std::optional<ref::Ruling> ruling_of(const Spec& spec);

/// The cases of a row. Throws std::invalid_argument on text that the schema does not know.
Spec broken_case(const ClauseEdge& edge, const Schema& schema);
std::optional<Spec> legal_case(const ClauseEdge& edge, const Schema& schema);

/// The last edit of `broken`, which the clause rejects, moved as near as it goes to the value that
/// it has in `legal`, and that one as near to it as it stays accepted. Values are multiples of
/// `step` apart. Other edits stay as they are.
struct Edge {
    Spec broken, legal;
};
Edge nearest_edge(Edge far, const std::string& clause, std::int64_t step = 1);

/// The clauses of one operator, numbered in the order of the table.
class Clauses {
public:
    Clauses(const std::vector<ClauseEdge>& edges, std::string_view op);

    std::size_t size() const { return names_.size(); }
    const std::string& name(std::size_t clause) const { return names_[clause]; }
    std::optional<std::size_t> number(std::string_view name) const;

    struct Row {
        std::optional<std::size_t> clause;  ///< none: a legal case
        const ClauseEdge* edge;
    };
    const std::vector<Row>& rows() const { return rows_; }

private:
    std::vector<std::string> names_;
    std::vector<Row> rows_;
};

}  // namespace attncheck::properties
