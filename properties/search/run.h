// A whole verification run over the chosen operators and properties, with progress for people who
// watch.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "properties/search/corpus.h"
#include "properties/search/engine.h"

namespace attncheck::properties {

/// A case that failed in an earlier run.
struct KnownCase {
    std::string op, property;
    Spec spec;
};

struct VerifyOptions {
    std::vector<std::string> operators;   ///< empty: all
    std::vector<std::string> properties;  ///< empty: all
    EngineOptions engine;
    Corpus* corpus = nullptr;  ///< replayed first and extended; may be null
    std::vector<KnownCase> known_cases;  ///< of a baseline: replayed first
    double total_seconds = 0;  ///< shared out over the properties; 0: no limit
    double loading_seconds = 0;  ///< that the candidate took when it was opened: those of the processes take about as long; 0: the time is for loading, too
    bool validation = true;
    bool stop_at_first = false;  ///< end the run with the first counterexample
    std::vector<PropertyReport> finished;  ///< by an earlier run that this one goes on with
    std::vector<PropertyReport> begun;     ///< by it, and to be gone on with
    /// Saves what is known while the run goes on; may be empty. Not called at the end.
    std::function<void(const RunReport&)> save;
};

/// Cases of a corpus and of a baseline: those that the property is asked for before any is generated.
std::vector<Spec> given_cases(const VerifyOptions& options, const Operator& op, const Property& property);

/// True for a name among `names`, and for every name if there are none.
bool is_chosen(const std::vector<std::string>& names, const std::string& name);

/// Runs everything and fills report.properties as it goes, so that an interrupted run has its
/// findings. Counterexamples are printed to `out` when found; `progress` (may be null) gets a line
/// that is rewritten in place.
void verify(Candidate& candidate, const VerifyOptions& options, const Clock& clock,
            RunReport& report, std::ostream& out, std::ostream* progress);

/// Whose operators the composition `op` runs on; empty for an operator of its own.
std::vector<RunReport::Source> sources_of(const Operator& op, const Candidate& candidate);

/// Fills report.sources: whose operators a composition runs on. verify() does it itself.
void note_sources(const Candidate& candidate, const VerifyOptions& options, RunReport& report);

/// The same with the properties shared out over several processes, each with a candidate of its
/// own. The process must have a single thread and no open candidate. A case is the same as in
/// verify(); a counterexample may end in another local minimum, because minima known from one
/// process are not tried in another. An interrupted run ends within a second, one with a time limit
/// within a tenth of it: what a process told until then is kept. A process that dies costs the rest
/// of its property.
void verify_side_by_side(const CandidateInfo& info,
                         const std::function<std::unique_ptr<Candidate>()>& open, int processes,
                         const VerifyOptions& options, const Clock& clock, RunReport& report,
                         std::ostream& out, std::ostream* progress);

}  // namespace attncheck::properties
