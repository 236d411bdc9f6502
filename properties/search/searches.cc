#include "properties/search/searches.h"

#include <algorithm>
#include <chrono>

#include "properties/candidate/candidate.h"
#include "properties/search/portions.h"

namespace attncheck::properties {

void Searches::tell_survey(const Operator& op, const std::string& text) {
    if (text.empty() || surveys_.contains(op.name())) return;
    surveys_.emplace(op.name(), survey_from(text, op, features_of(options_.engine.features, op.name()),
                                            options_.engine.profile));
}

const Survey& Searches::survey_of(const Operator& op) {
    const auto known = surveys_.find(op.name());
    if (known != surveys_.end()) return known->second;
    const EngineOptions& engine = options_.engine;
    // A call that hangs is for the laws to find, which take the whole limit twice: nobody is accused here.
    candidate_.limit_time(std::chrono::duration<double>(options_.total_seconds / 8));
    Survey learned = survey(op, candidate_, engine.seed, engine.profile, features_of(engine.features, op.name()));
    candidate_.limit_time(std::chrono::duration<double>(0));
    return surveys_.emplace(op.name(), std::move(learned)).first->second;
}

std::vector<Spec> given_cases(const VerifyOptions& options, const Operator& op, const Property& property) {
    std::vector<Spec> cases;
    if (options.corpus) cases = options.corpus->cases_of(op, property);
    for (const KnownCase& known : options.known_cases)
        if (known.op == op.name() && known.property == property.name && is_case_of(property, known.spec) &&
            std::ranges::find(cases, known.spec) == cases.end())
            cases.push_back(known.spec);
    return cases;
}

EngineOptions Searches::engine_options(const RunTask& task) {
    EngineOptions engine = options_.engine;
    if (options_.total_seconds > 0)  // shrinking may take a run a little past its time, not far
        engine.shrink_seconds =
            std::min(std::max(options_.total_seconds / 4, 2.0), engine.shrink_seconds);
    engine.leaves_shrinking = !options_.stop_at_first;
    engine.withheld = withheld_outputs(engine.features, *task.op);
    engine.missing_outputs = of_all_.missing_outputs;
    engine.declared = of_all_.declared;
    engine.companions = of_all_.companions;
    engine.dealt_from = task.dealt_from;
    engine.begun = task.begun;
    if (has_first_portion(engine)) engine.replay = given_cases(options_, *task.op, *task.property);
    if (!engine.replay_only) engine.survey = &survey_of(*task.op);
    return engine;
}

Searches::Outcome Searches::search(const RunTask& task, const Slice& slice,
                                   const CaseObserver& on_case) {
    std::unique_ptr<PropertySearch>& search = searches_[{task.op, task.property}];
    if (!search)
        search = std::make_unique<PropertySearch>(*task.op, *task.property, candidate_,
                                                  engine_options(task), clock_, known_);
    Outcome outcome{search->go_on(slice, on_case), search->is_over()};
    if (outcome.is_over) search.reset();
    return outcome;
}

Counterexample Searches::shrink(const RunTask& task, const Counterexample& found) {
    PropertySearch alone(*task.op, *task.property, candidate_, engine_options(task), clock_, known_);
    return alone.shrunk(found);
}

}  // namespace attncheck::properties
