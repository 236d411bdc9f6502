// Runs properties over generated cases: rapidcheck draws Specs and walks down their neighbours when
// one fails; this keeps the failure's class constant on the way, certifies the end, counts what was
// reached, and goes on to look for failures of other classes.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/report/results.h"
#include "properties/search/clock.h"
#include "properties/search/survey.h"
#include "properties/search/waiver.h"

namespace attncheck::properties {

struct EngineOptions {
    std::uint64_t seed = 1;
    Profile profile = Profile::ascend910b;
    std::int64_t cases = 100;  ///< per property; 0: as many as the time allows
    double seconds = 0;        ///< per property; 0: no limit
    double shrink_seconds = 30;
    bool leaves_shrinking = false;  ///< to PropertySearch::shrunk(), of another process or later
    bool small_plain_first = false;  ///< of the first cases the small ones come first: for slow candidates
    bool explains = false;  ///< says which fields of a smallest case matter, see explain.h
    int shard = 0, shards = 1;    ///< 0-based
    int dealt_from = 0;           ///< shard of the property's first portion, see portions.h
    int max_counterexamples = kMostCounterexamples;  ///< distinct failure classes per property
    double timeout_s = 10;
    std::vector<Waiver> waivers;
    ref::RoundingClass rounding;
    const ToleranceRule* rule = nullptr;  ///< see PropertyContext
    const PropertyReport* begun = nullptr;  ///< the search goes on after these cases; null: from the beginning
    std::vector<Spec> replay;  ///< cases of this property that are run before any is generated
    bool replay_only = false;  ///< generate none
    std::int64_t samples = kSampledRows;
    std::string features;  ///< as declared for all operators, see features_of(); empty: learned
    const Survey* survey = nullptr;  ///< of the operator; null: everything is drawn
    std::uint64_t withheld = 0;  ///< outputs of the operator that the candidate declares not to give
    std::vector<std::string> missing_outputs;  ///< the same of all operators, see PropertyContext
    std::function<bool(const Spec&)> declared = {};  ///< the same
    CompanionCalls companions = nullptr;  ///< the same
};

using CaseObserver = std::function<void(const PropertyReport& so_far)>;

/// Minimal cases found so far, by operator and failure class: the first things to try when
/// shrinking another one.
using KnownMinima = std::map<std::string, std::vector<Spec>>;

/// The part of a search that is run at a time; 0: no limit. It ends with a counterexample that is left to be shrunk.
struct Slice {
    std::int64_t cases = 0;  ///< of the property, those of the slices before among them
    double seconds = 0;      ///< of the slice
};

class Search;

/// A search that stops between two cases and goes on there: however it is cut, its cases are the same.
class PropertySearch {
public:
    PropertySearch(const Operator& op, const Property& property, Candidate& candidate,
                   EngineOptions options, const Clock& clock, KnownMinima& known);
    ~PropertySearch();

    /// What is known of the property after the slice, with a verdict.
    PropertyReport go_on(const Slice& slice, const CaseObserver& on_case);
    /// The property needs no other slice.
    bool is_over() const;

    /// Shrinks what a search found and left. Not of one that has gone on.
    Counterexample shrunk(const Counterexample& found);

private:
    std::unique_ptr<Search> search_;
};

/// The whole search.
PropertyReport run_property(const Operator& op, const Property& property, Candidate& candidate,
                            const EngineOptions& options, const Clock& clock,
                            const CaseObserver& on_case, KnownMinima& known);

/// One case, in a fresh worker; exceptions become an "error" verdict.
Verdict check_case(const Property& property, const Spec& spec, PropertyContext& context);

}  // namespace attncheck::properties
