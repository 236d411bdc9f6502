// The cases of validation that are not left to chance: for each clause of the documented constraints
// a call that it alone rejects and the nearest one that is accepted, rarest clauses first; then the
// same clauses in other cases.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/report/results.h"
#include "properties/search/scope.h"

namespace attncheck::properties {

class ClausePlan {
public:
    /// Of a property with clauses. Portion `part` of `parts` has the rows whose number leaves its own.
    ClausePlan(const Operator& op, const Property& property, Profile profile, int part = 0, int parts = 1);

    /// The next case; `draw` gives legal cases to vary it with. nullopt when this one has none. The
    /// candidate takes cases of `scope`; null: all.
    std::optional<Spec> next(Random& random, const std::function<std::optional<Spec>()>& draw,
                             const Scope* scope);

    /// Whether both sides of every edge were asked for.
    bool is_through() const { return next_ >= 2 * rows_.size(); }
    /// Notes that the clause decided a case.
    void note(const std::string& clause);

    /// What the run says of the clauses.
    ClauseCoverage coverage() const;

private:
    struct Row {
        std::optional<std::size_t> clause;  ///< none: `broken` is a legal case
        Spec broken;
        std::optional<Spec> legal;
    };
    /// Empty for an accepted call.
    std::string name_of(const Row& row, bool is_legal_side) const {
        return is_legal_side || !row.clause ? std::string() : clauses_.name(*row.clause);
    }
    std::optional<Spec> listed(const Row& row, bool is_legal_side, Random& random,
                               const Scope* scope);
    std::optional<Spec> varied(const Row& row, Random& random,
                               const std::function<std::optional<Spec>()>& draw,
                               const Scope* scope) const;

    const Operator& op_;
    Clauses clauses_;
    std::vector<Row> rows_;
    std::size_t next_ = 0;
    PairSet decided_, inside_;
};

}  // namespace attncheck::properties
