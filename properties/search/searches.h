// What one process of a run keeps: what it learned of each operator, its searches between their slices, and the minima
// that it found.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "properties/search/engine.h"
#include "properties/search/run.h"

namespace attncheck::properties {

struct RunTask {
    const Operator* op = nullptr;
    const Property* property = nullptr;
    int dealt_from = 0;  ///< see EngineOptions
    const PropertyReport* begun = nullptr;  ///< see EngineOptions

    /// The operator that must be surveyed before the property is searched; nullptr: none.
    const Operator* surveyed(const VerifyOptions& options) const {
        return options.engine.replay_only || op->is_composition() ? nullptr : op;
    }
};

/// What a search of one operator knows of all: see PropertyContext.
struct OfAllOperators {
    std::vector<std::string> missing_outputs;
    std::function<bool(const Spec&)> declared;
    CompanionCalls companions = nullptr;
};

class Searches {
public:
    Searches(Candidate& candidate, const VerifyOptions& options, const Clock& clock,
             OfAllOperators of_all)
        : candidate_(candidate), options_(options), clock_(clock), of_all_(std::move(of_all)) {}

    /// The survey of an operator, from another process; no text: this one makes its own when it is needed.
    void tell_survey(const Operator& op, const std::string& text);
    const Survey& survey_of(const Operator& op);

    struct Outcome {
        PropertyReport report;
        bool is_over = false;  ///< no other slice is needed
    };
    /// A slice of the property. Its search begins in the first slice that this process has of it.
    Outcome search(const RunTask& task, const Slice& slice, const CaseObserver& on_case);
    Counterexample shrink(const RunTask& task, const Counterexample& found);

private:
    EngineOptions engine_options(const RunTask& task);

    Candidate& candidate_;
    const VerifyOptions& options_;
    const Clock& clock_;
    const OfAllOperators of_all_;
    std::map<std::string, Survey> surveys_;
    KnownMinima known_;
    std::map<std::pair<const Operator*, const Property*>, std::unique_ptr<PropertySearch>> searches_;
};

}  // namespace attncheck::properties
