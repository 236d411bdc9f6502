// Where the cases of one property come from: the generator, what is planned for single clauses, and
// what is known of the cases that the candidate takes.
#pragma once

#include <optional>

#include "properties/search/clause_plan.h"
#include "properties/search/engine.h"
#include "properties/search/portions.h"

namespace attncheck::properties {

class CaseSource {
public:
    CaseSource(const Operator& op, const Property& property, const EngineOptions& options, const Portion& portion);

    /// A case of the property's domain that the candidate takes, as far as is known; any case, which
    /// is not to be run, once is_outside(). Throws std::logic_error where the generator leaves its
    /// own domain.
    Spec next(Random& random, int size, bool is_plain);

    std::optional<Scope>& scope() { return scope_; }     ///< what is taken; none: everything
    const std::optional<Scope>& scope() const { return scope_; }
    std::optional<ClausePlan>& plan() { return plan_; }  ///< of validation
    const std::optional<ClausePlan>& plan() const { return plan_; }
    bool explores() const { return explores_; }  ///< the last case lies outside of the scope
    bool is_outside() const { return is_outside_; }  ///< no case of the property is one that is taken

private:
    bool is_in_domain(const Spec& spec) const;
    std::optional<Spec> draw(Random& random, int size, bool is_plain);
    std::optional<Spec> planned(Random& random, int size);

    const Operator& op_;
    const Property& property_;
    const EngineOptions& options_;
    std::optional<ClausePlan> plan_;
    std::optional<Scope> scope_;  ///< as learned so far
    bool explores_ = false;
    bool is_outside_ = false;
};

}  // namespace attncheck::properties
