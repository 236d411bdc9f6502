// A law as the engine runs it: a check with its domain and its share of the cases.
#pragma once

#include <functional>
#include <string>

#include "properties/case/edit_groups.h"
#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "properties/judge/context.h"
#include "properties/judge/verdict.h"
#include "properties/laws/clauses.h"

namespace attncheck::properties {

/// A law every correct implementation obeys. `check` is a pure function of the Spec and the
/// candidate.
struct Property {
    std::string name;
    std::string summary;  ///< one line for `attncheck list`
    std::function<Verdict(const Spec&, PropertyContext&)> check;
    std::function<void(Spec&, Random&)> adapt = {};  ///< steers the operator's generator
    std::function<bool(const Spec&)> domain = {};    ///< empty: every legal Spec
    bool validation = false;                         ///< only run when the candidate validates
    int case_factor = 1;   ///< how many times the usual number of cases it gets
    int case_divisor = 1;  ///< what part of them: large cases say as much as many small ones
    bool large = false;    ///< made for cases of full size: runs only when asked for by name
    /// Of validation: every single change of a case that is tried.
    std::function<EditGroups(const Spec&)> edits = {};
    /// Of validation: cases that are run before any is drawn, so that each clause decides some. Those
    /// of other operators are among them.
    const std::vector<ClauseEdge>* clauses = nullptr;

    /// What judged a failed verdict of this property.
    Tier tier_of(const Verdict& verdict) const {
        const bool died = verdict.tier == Tier::crash || verdict.tier == Tier::memory;
        return validation && !died ? Tier::validation : verdict.tier;
    }
};

}  // namespace attncheck::properties
