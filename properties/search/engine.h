// Runs properties over generated cases: rapidcheck draws Specs and walks down their neighbours when
// one fails; this keeps the failure's class constant on the way, certifies the end, counts what was
// reached, and goes on to look for failures of other classes.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "properties/search/class_pairs.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

struct Counterexample {
    Spec spec, original;
    std::string failure, message;
    std::string found_message;  ///< of the case as it was found: the one with the most power
    std::string tier;           ///< tier_of: bound, deviation, filter, relation, memory, ...
    int neighbours_tried = 0, steps_taken = 0;
    std::string certificate;  ///< "no dimension can be decreased, ...: 23 of 23 neighbours hold",
                              ///< or why there is none
    double shrink_seconds = 0;
    bool repeatable = true;  ///< fails alone in a fresh process too
    int case_number = 0;     ///< how many cases had been run when it was found
};

struct PropertyReport {
    enum class Status { held, falsified, declined, not_implemented, error } status = Status::held;
    std::string op, property;
    std::int64_t cases = 0, declined = 0, waived = 0;
    std::int64_t replayed = 0;  ///< cases that were not generated but given; not among `cases`
    std::map<std::string, std::int64_t> labels;  ///< over checked cases, see kEditedLabel
    PairSet pairs;                               ///< of the operator's classes, over the same cases
    double worst_ratio = 0;
    std::vector<CastEvidence> casts;              ///< by word, over all cases
    std::vector<Counterexample> counterexamples;  ///< one per failure class
    std::vector<std::string> waivers;             ///< reasons of the waivers that were used
    std::string note;
    std::vector<std::string> coverage;  ///< of each case of full size, what was looked at
    double seconds = 0;
    bool interrupted = false;
};

std::string_view name_of(PropertyReport::Status status);

/// Adds up evidence for the same word.
void add_evidence(std::vector<CastEvidence>& all, const CastEvidence& one);

/// A known deviation that is counted and shown, not reported as a failure.
struct Waiver {
    std::string op, property;         ///< "*" matches all
    std::vector<std::string> labels;  ///< all must hold for the case; empty matches all
    std::string reason;
};

/// Time and interruption, so that tests can steer them.
class Clock {
public:
    virtual ~Clock() = default;
    virtual double now() const = 0;  ///< seconds, monotone
    virtual bool interrupted() const = 0;
};

struct EngineOptions {
    std::uint64_t seed = 1;
    Profile profile = Profile::ascend910b;
    std::int64_t cases = 100;  ///< per property; 0: as many as the time allows
    double seconds = 0;        ///< per property; 0: no limit
    double shrink_seconds = 30;
    int shard = 0, shards = 1;    ///< 0-based
    int max_counterexamples = 4;  ///< distinct failure classes per property
    double timeout_s = 10;
    std::vector<Waiver> waivers;
    ref::RoundingClass rounding;
    const ToleranceRule* rule = nullptr;  ///< see PropertyContext
    std::vector<Spec> replay;  ///< cases of this property that are run before any is generated
    bool replay_only = false;  ///< generate none
    std::int64_t samples = PropertyContext::kSamples;
};

using CaseObserver = std::function<void(const PropertyReport& so_far)>;

/// Minimal cases found so far, by operator and failure class: the first things to try when
/// shrinking another one.
using KnownMinima = std::map<std::string, std::vector<Spec>>;

PropertyReport run_property(const Operator& op, const Property& property, Candidate& candidate,
                            const EngineOptions& options, const Clock& clock,
                            const CaseObserver& on_case, KnownMinima& known);

/// One case, in a fresh worker; exceptions become an "error" verdict.
Verdict check_case(const Property& property, const Spec& spec, PropertyContext& context);

/// What the properties of an operator generated: percentages of their unedited cases by label.
/// Every property counts alike: where each has equal time instead of equal cases, the one with the
/// smallest cases would have most of them. Those with a handful of cases do not count.
struct GeneratedClasses {
    std::map<std::string, double> percent;
    std::int64_t cases = 0;
};
GeneratedClasses generated_classes(const std::string& op,
                                   const std::vector<PropertyReport>& properties);

/// Percentages of generated cases with a label against the operator's quotas; empty when all are
/// reached.
std::vector<std::string> missing_classes(const Operator& op,
                                         const std::map<std::string, double>& percent);

}  // namespace attncheck::properties
