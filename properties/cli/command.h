// What the subcommands of the command line share: their arguments, exit status, and the candidate
// that the arguments ask for.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "properties/candidate/worker_candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/report/exit_status.h"

namespace attncheck::properties {

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Prints to standard output; what it cannot take is noted there and no exception.
template <typename... T>
void say(fmt::format_string<T...> text, T&&... values) {
    std::cout << fmt::format(text, std::forward<T>(values)...);
}

constexpr int kUsualSeconds = 60;    ///< of a run that is not told how long it may take
constexpr int kThoroughCases = 100;  ///< of a property, with --thorough

struct Arguments {
    std::string candidate, precision, required_precision, features, shard = "1/1", waive, json,
        junit, html, corpus, rule, resume, case_line, property, merged, python, tensor_file, emit,
        report, dump, baseline, badge, write_waivers;
    std::string source;  ///< of the case of "@N": which run
    Profile profile = Profile::ascend910b;
    SandboxMode sandbox = usual_sandbox();
    std::set<std::string> given;  ///< of the options that a report has for a replay, those of the command line
    std::vector<std::string> ops, properties, files, required, variables;
    std::int64_t cases = -1, memory = 8192;
    double seconds = 0, timeout = 10;
    std::optional<std::uint64_t> seed;
    int jobs = 0;
    bool no_validation = false, stop_at_first = false, partial = false, as_json = false, verbose = false;
    bool judge = false, secret_seed = false, thorough = false;
    double shrink = 30, budget = 10;
    std::int64_t large = 0, samples = kSampledRows;
};

/// Where --candidate leads, with the options of the command line. Throws LoadError.
WorkerOptions worker_options(const Arguments& arguments);

/// The walls that stand around the candidate of these arguments: "landlock 7, seccomp", "off".
std::string sandbox_level(const Arguments& arguments);

/// What a command that replays a case has of --sandbox, --env, --timeout and --memory: " --sandbox off".
std::string replay_options(const Arguments& arguments);

/// One note on the variables of --env that are not set: the library does not get them. Empty where all are set.
std::vector<std::string> unset_variables(const Arguments& arguments);

std::unique_ptr<Candidate> open_candidate(const Arguments& arguments, bool show_stderr);

/// With an operator that a composition needs and the candidate lacks, the built-in one takes its
/// place, if the composition is asked for by name and the candidate has some operator of it.
std::unique_ptr<Candidate> completed(std::unique_ptr<Candidate> candidate,
                                     const std::vector<std::string>& asked_for,
                                     const Arguments& arguments);

/// With a gradient but not its forward, the built-in forward gives the statistics of large cases.
std::unique_ptr<Candidate> with_forwards(std::unique_ptr<Candidate> candidate,
                                         const Arguments& arguments);

/// A line for each export "attncheck_NAME" that is no entry point, with the one that it resembles.
std::vector<std::string> unknown_exports(const CandidateInfo& info);
/// The same, and what the file of the library shows (load_hints.h).
std::vector<std::string> unknown_exports(const CandidateInfo& info, const Arguments& arguments);

/// Throws UsageError when an operator of --require is not implemented.
void check_required(const Arguments& arguments, const CandidateInfo& info);

attncheck::ref::RoundingClass rounding_of(const Arguments& arguments, const Candidate& candidate);
/// The same without a candidate: that of --precision, or the default.
attncheck::ref::RoundingClass rounding_of(const Arguments& arguments);

/// What the library takes, as the command line or the library says. Throws UsageError unless every
/// operator, field and output is known.
std::string checked_features(const Arguments& arguments, const Candidate& candidate);

/// `attncheck verify` (verify_command.cc), `reproduce` (reproduce_command.cc) and `judge`
/// (judge_command.cc): the exit status.
int verify_command(const Arguments& arguments);
int reproduce_command(const Arguments& arguments);
/// With the case, property and candidate of "@N" in place of it.
Arguments with_counterexample(Arguments arguments);

struct LegalCase {
    const Operator* op;
    Spec spec;
};
/// The case line of the arguments. Throws UsageError when it cannot be read, or is not legal.
LegalCase legal_case(const Arguments& arguments);
int judge_command(const Arguments& arguments);

}  // namespace attncheck::properties
