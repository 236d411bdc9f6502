// Learns which cases a candidate takes, before any property is run: most kernels take one case of a hundred of those
// that the documents allow, and a run that only met refusals says nothing of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/report/results.h"
#include "properties/search/scope.h"

namespace attncheck::properties {

class Candidate;

/// What was learned of one operator.
struct Survey {
    Scope scope;
    int calls = 0, declined = 0;
    bool takes_nothing = false;  ///< not one of the cases that were tried
    TakenCases taken;
    std::string reason;  ///< what the candidate said most often to cases that it declined
};

/// Calls the candidate on about a hundred cases, none where it declines none of the first ones. The same seed asks for
/// the same cases. A call that crashes counts as taken: it will be judged. The first call that hangs, three crashes one
/// behind another, or ten seconds of calls end the survey with everything open.
/// Features that the candidate declares (Scope::restrict_to) are taken as they are, and only an accepted case is looked for.
Survey survey(const Operator& op, Candidate& candidate, std::uint64_t seed, Profile profile,
              const std::string& features = {});

/// Text of a survey between processes of one run, and back with the same features.
std::string to_text(const Survey& survey);
Survey survey_from(const std::string& text, const Operator& op, const std::string& features,
                   Profile profile);

/// The part of a declaration that is about an operator: "attention: dim=64,128 layout=bshd", one line for each operator
/// or separated by ';'. Empty where there is none. Throws std::invalid_argument on a line without an operator's name.
std::string features_of(const std::string& declaration, const std::string& op);
/// Outputs of the operator that it leaves out, as in Spec::withheld.
std::uint64_t withheld_outputs(const std::string& declaration, const Operator& op);
/// The same of all operators, as in PropertyContext.
std::vector<std::string> missing_outputs(const std::string& declaration,
                                         const std::vector<std::unique_ptr<Operator>>& operators);
/// Whether a case of any operator has the features that are declared, as in PropertyContext; empty:
/// none are.
std::function<bool(const Spec&)> declared_cases(
    const std::string& declaration, const std::vector<std::unique_ptr<Operator>>& operators);
std::vector<std::string> operators_of(const std::string& declaration);

}  // namespace attncheck::properties
