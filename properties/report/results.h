// What a run came to: of each property, of each operator's pairs of classes, as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/spec.h"
#include "properties/judge/sampling.h"
#include "properties/judge/verdict.h"
#include "properties/report/ratio_histogram.h"

namespace attncheck::properties {

/// Pairs that were reached, as bits whose order is ClassPairs'. Empty where none was noted.
struct PairSet {
    std::vector<std::uint64_t> words;

    void add(std::size_t pair);
    bool has(std::size_t pair) const;
    void add_all(const PairSet& other);
    bool operator==(const PairSet&) const = default;
};

/// Text of a set between processes of one run, and back.
std::string to_text(const PairSet& set);
PairSet pair_set_from(std::string_view text);

/// What part of an operator's cases the candidate takes, where it does not take all.
struct TakenCases {
    std::string text;  ///< "dim=64,128 layout=BSND,TND (0.4 % of all cases, ...)"; empty: all cases
    std::string refusals;              ///< "sparse 67 %, pse 56 %": what keeps most cases outside
    std::vector<std::string> classes;  ///< required ones that such cases have
    PairSet pairs;                     ///< of classes, that such cases have
};

/// What a run reached of an operator's pairs.
struct PairCoverage {
    std::string op;
    std::int64_t possible = 0;
    std::vector<std::string> missing;  ///< "broadcast + many_blocks", sorted
    std::int64_t reached() const { return possible - static_cast<std::int64_t>(missing.size()); }
};

/// What validation reached of an operator's documented constraints.
struct ClauseCoverage {
    std::int64_t possible = 0;         ///< clauses that calls inside of what is taken can break
    std::vector<std::string> missing;  ///< of these, that decided no call
    std::vector<std::string> outside;  ///< the other clauses: not taken, or another shard's
    bool is_through = false;           ///< every one was tried: a missing one is missing
};

/// "pairs 412 of 431"
std::string pairs_text(std::int64_t reached, std::int64_t possible);

/// Generated cases of a property, and those without a verdict among them.
struct DrawnCases {
    std::int64_t cases = 0;
    std::int64_t inapplicable = 0;      ///< the property demands nothing of them
    std::int64_t hardly_compared = 0;   ///< no bound judges most of their elements
    std::int64_t needed = 0;            ///< cases with a verdict that make it held; 0: these counts decide nothing
    bool is_outside = false;            ///< no case of the property is one that the candidate takes
    bool is_mostly_declined = false;    ///< compares with calls that the candidate does not take
    std::int64_t edited = 0;            ///< calls with edited arguments, among those with a verdict
    std::uint64_t digest = 0;           ///< sum of hashes of their case lines: the same set has the same
};

/// What became of each case of a search, see search/journal.h.
struct CaseJournal {
    std::string text;                   ///< of generated cases, in their order
    std::vector<std::string> failures;  ///< classes that the text names by number
    std::int64_t replayed = 0;          ///< given cases that were begun before
};

/// Required classes of an operator.
struct ClassQuotas {
    std::map<std::string, double> percent;  ///< of unedited cases, at least
    bool is_limited = false;                ///< the candidate takes some cases only: each class in one case, at least
};

struct Counterexample {
    Spec spec, original;
    std::string failure, message;
    std::string found_message;  ///< of the case as it was found: the one with the most power
    Tier tier = Tier::relation;
    int neighbours_tried = 0, steps_taken = 0;
    std::string certificate;  ///< "no dimension can be decreased, ...: 23 of 23 neighbours hold",
                              ///< or why there is none
    bool certified = false;   ///< every neighbour was tried and holds
    double shrink_seconds = 0;
    bool repeatable = true;     ///< fails alone in a fresh process too
    int case_number = 0;        ///< how many cases had been run when it was found
    std::string matters;        ///< which fields of the smallest case do, see search/explain.h
    bool being_shrunk = false;  ///< in a report on the way: another one will take its place
};

/// How the certificate of a counterexample begins that was left to be shrunk.
inline constexpr const char* kNotShrunk = "not shrunk to its end";
/// And of one that failed in the run and not alone.
inline constexpr std::string_view kNotAlone = "fails here but not alone in a fresh process";
/// And of one that was shrunk until the time was over.
inline constexpr std::string_view kStopped = "search stopped";
/// And how one ends whose shrunk case was not seen to fail again.
inline constexpr std::string_view kShownAsFound = "shown as found";
/// What a certificate says of its case: the case is as it was found where this is false.
inline bool is_of_shrunk(std::string_view certificate) {
    return certificate.find("not shrunk") == std::string_view::npos && !certificate.ends_with(kShownAsFound);
}
inline bool is_of_stopped(std::string_view certificate) { return certificate.starts_with(kStopped); }
/// "smallest", "smaller" or "not shrunk": in front of the case.
inline std::string_view head_of_case(std::string_view certificate) {
    return !is_of_shrunk(certificate) ? "not shrunk" : is_of_stopped(certificate) ? "smaller" : "smallest";
}

/// Of its case, or as found where the case held when it was run once more.
inline const std::string& message_of(const Counterexample& found) {
    return found.message.empty() ? found.found_message : found.message;
}

/// Cases that a property must meet to say that it holds, where as many were asked for.
inline constexpr std::int64_t kConclusiveCases = 30;
/// Failure classes of a property that are shown.
inline constexpr int kMostCounterexamples = 4;

struct PropertyReport {
    enum class Status {
        held,
        falsified,
        declined,  ///< no case of it is one that the candidate takes
        not_implemented,
        error,
        inconclusive,   ///< too few cases to say that it holds
        not_applicable  ///< demands nothing of any case, or needs an output that is not given
    } status = Status::held;
    std::string op, property;
    std::int64_t cases = 0, declined = 0, waived = 0;
    std::int64_t replayed = 0;  ///< cases that were not generated but given; not among `cases`
    DrawnCases drawn;
    CaseJournal journal;  ///< for a run that goes on with this one
    std::map<std::string, std::int64_t> labels;  ///< over checked cases, see RequiredClass
    PairSet pairs;                               ///< of the operator's classes, over the same cases
    double worst_ratio = 0;
    RatioHistogram ratios;                        ///< over judged cases
    std::int64_t rejected = 0;  ///< illegal calls of validation that were rejected as they should be
    std::int64_t differing = 0;       ///< cases whose bits differed as the order of sums allows
    ElementCount elements;            ///< over all cases
    std::vector<CastEvidence> casts;  ///< by word, over all cases
    std::vector<BoundEvidence> bounds;  ///< by name, over some of the cases
    std::vector<Counterexample> counterexamples;  ///< one per failure class
    /// Of a run that was killed: those that it had found and not shrunk wait for it again.
    void go_on_shrinking() {
        for (Counterexample& found : counterexamples) found.being_shrunk = found.certificate.starts_with(kNotShrunk);
    }
    std::vector<std::string> waivers;             ///< reasons of the waivers that were used
    std::string note;
    std::vector<std::string> coverage;  ///< of each case of full size, the rows that were compared
    double seconds = 0;
    bool interrupted = false;
    TakenCases taken;  ///< the same for all properties of an operator
    ClauseCoverage clauses;  ///< of validation
    ClassQuotas quotas;      ///< of "required_classes"
};

std::string_view name_of(PropertyReport::Status status);

struct RunReport {
    std::string candidate;         ///< its name
    std::string library;           ///< as given on the command line; empty: built-in
    std::string precision_option;  ///< --precision as given on the command line
    std::string python_option;     ///< --python, for functions in Python
    std::string precision;         ///< rounding class as declared, in full; empty: not known
    std::string library_sha256;    ///< empty: not known
    std::string replay_options;    ///< as replaying has to have them: " --sandbox off"
    std::string sandbox;           ///< walls that stood around the candidate: "landlock 7, seccomp"
    std::string version, host;     ///< of the suite; where it ran
    std::string date;              ///< of its end, "2026-11-23T08:15:00Z"; empty: not known
    int shard = 0, shards = 1;     ///< 0-based
    /// Of a shard: "OP.PROPERTY" of the whole run, in its order.
    std::vector<std::string> agenda;
    /// What the run was asked for, as far as it decides about verdicts: name and value. Shards of
    /// one run agree on all of it.
    std::vector<std::pair<std::string, std::string>> options;
    Profile profile = Profile::ascend910b;
    std::uint64_t seed = 1;
    std::int64_t samples = kSampledRows;  ///< of verify --large
    double duration_s = 0;
    bool interrupted = false;
    bool is_kept = true;  ///< `reproduce @N` finds it; else each counterexample is told with its whole command
    std::vector<PropertyReport> properties;
    /// For compositions: whose operators they were run on. Composition, operator, name.
    struct Source {
        std::string composition, op, implementation;
    };
    std::vector<Source> sources;
    std::vector<PairCoverage> pairs;  ///< of every operator that had cases
    std::map<std::string, TakenCases>
        taken;                       ///< by operator, of those whose cases are not all taken
    std::vector<std::string> notes;  ///< what went wrong beside the verdicts: files, processes
};

/// See exit_status.h.
int exit_status(const RunReport& report);

/// The rounding class that the errors of the whole run look like: "p=fp32 ds=half sum=fp32", as far
/// as there is evidence.
std::string observed_precision(const RunReport& report);

/// Worst errors in units of other bounds, over the whole run (judge/bound_evidence.h).
std::vector<BoundEvidence> observed_bounds(const RunReport& report);

/// What judged a failure of the computed values: no death, no foreign memory, no illegal call.
bool is_of_numbers(Tier tier);

/// Words of the declaration that are wider than the errors of the whole run; empty: none is.
std::string wider_than_seen(const std::string& declared, const std::vector<BoundEvidence>& seen);
/// The same of a run; empty where values were wrong: the kernel that computes them right may need each word.
std::string wider_than_seen(const RunReport& report);

/// "bits differed in 12 cases, within the bounds of sums in any order"; empty when none did.
std::string order_text(std::int64_t cases);

std::string reproduce_command(const RunReport& report, const PropertyReport& property,
                              const Counterexample& found);

/// One word of a shell command.
std::string shell_quoted(const std::string& text);

}  // namespace attncheck::properties
