// The candidate that the arguments of a command ask for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "properties/candidate/candidate_option.h"
#include "properties/candidate/guardian.h"
#include "properties/candidate/installation.h"
#include "properties/case/printable.h"
#include "properties/cli/command.h"
#include "properties/report/results.h"
#include "properties/search/clock.h"
#include "properties/search/large.h"
#include "properties/search/survey.h"
#include "properties/candidate/mixed_candidate.h"
#include "properties/candidate/python_candidate.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/cli/entry_table.h"
#include "properties/cli/load_hints.h"
#include "properties/cli/names.h"

namespace attncheck::properties {

namespace {

/// The suite itself, and libraries that are right, unless they are the candidate: it could call
/// those of another. `library` is what the command line names, files after a colon and commas.
std::vector<std::string> hidden_from(const std::string& library, const WorkerOptions& options) {
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<fs::path> own{fs::canonical(options.library, error)};
    std::istringstream names(library.substr(library.find(':') + 1));
    for (std::string name; std::getline(names, name, ',');)
        own.push_back(fs::canonical(name, error));
    std::vector<std::string> hidden{fs::canonical("/proc/self/exe", error)};
    for (const auto& find : {find_builtin_library, find_mutants_library}) {
        try {
            const fs::path right = fs::canonical(find(), error);
            if (!error && std::ranges::find(own, right) == own.end()) hidden.push_back(right);
        } catch (const LoadError&) {
            // Not every installation has all of them.
        }
    }
    return hidden;
}

WorkerOptions options_for(const std::string& library, const Arguments& arguments) {
    WorkerOptions options;
    if (library.starts_with(kPythonPrefix))
        choose_python(library.substr(kPythonPrefix.size()), arguments.python, entry_table_json(),
                      options);
    else
        choose_library(library, options);
    options.sandbox = Sandbox::shared(arguments.sandbox, hidden_from(library, options));
    options.variables = arguments.variables;
    options.profile = arguments.profile;
    options.timeout_s = arguments.timeout;
    if (arguments.judge) options.load_limit_s = arguments.budget;
    options.memory_mib = arguments.memory;
    options.stopped = [] { return system_clock().interrupted(); };
    return options;
}

/// What the library itself says of why it cannot be loaded: once more, with its standard error. One
/// that took long to fail has kept its user waiting already.
void show_messages_of(WorkerOptions options, double seconds) {
    constexpr double kLong = 2;
    if (options.messages || seconds > kLong) return;
    options.messages = &std::cerr;
    try {
        (void)open_worker_candidate(options);
    } catch (const std::exception&) {  // the first error is the one that is reported
    }
}

std::unique_ptr<Candidate> open(const std::string& library, const Arguments& arguments,
                                bool show_stderr) {
    WorkerOptions options = options_for(library, arguments);
    if (show_stderr) options.messages = &std::cerr;
    const double start = system_clock().now();
    try {
        return open_worker_candidate(options);
    } catch (const LoadError& e) {
        show_messages_of(options, system_clock().now() - start);
        if (library.starts_with(kPythonPrefix)) throw;  // its worker has said why
        std::string hint = load_hint(options.library);
        std::istringstream behind(options.behind);
        for (std::string path; hint.empty() && std::getline(behind, path, ',');) hint = load_hint(path);
        if (hint.empty() && arguments.sandbox != SandboxMode::off && std::string_view(e.what()).ends_with("while it was loaded"))
            hint = "--sandbox off shows whether it needs a file or a service that the walls around it keep away";
        if (hint.empty()) throw;
        throw LoadError(fmt::format("{}; {}", e.what(), hint));
    }
}

std::vector<std::string> withheld_variables(const Arguments& arguments) {
    const WorkerOptions options = worker_options(arguments);
    if (!options.sandbox || arguments.sandbox == SandboxMode::off || arguments.candidate.empty()) return {};
    std::ifstream in(options.library, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    return withheld_variables_named_in(file, environ, options.variables);
}

std::unique_ptr<Candidate> with_builtin(std::unique_ptr<Candidate> candidate,
                                        const Arguments& arguments) {
    return std::make_unique<MixedCandidate>(std::move(candidate), open({}, arguments, false));
}

}  // namespace

WorkerOptions worker_options(const Arguments& arguments) {
    return options_for(arguments.candidate, arguments);
}

std::string replay_options(const Arguments& arguments) {
    std::string text = arguments.sandbox == SandboxMode::on
                           ? ""
                           : fmt::format(" --sandbox {}", name_of(arguments.sandbox));
    for (const std::string& name : arguments.variables)
        text += " --env " + shell_quoted(name);
    const Arguments usual;
    if (arguments.timeout != usual.timeout) text += fmt::format(" --timeout {:g}", arguments.timeout);
    if (arguments.memory != usual.memory) text += fmt::format(" --memory {}", arguments.memory);
    return text;
}

std::vector<std::string> unset_variables(const Arguments& arguments) {
    std::vector<std::string> names;
    for (const std::string& name : arguments.variables)
        if (!std::getenv(name.c_str()) && std::ranges::find(names, printable(name)) == names.end())
            names.push_back(printable(name));
    if (names.empty()) return {};
    const bool is_one = names.size() == 1;
    return {fmt::format("the variable{} {} of --env {} not set: the library runs without {}", is_one ? "" : "s",
                        fmt::join(names, ", "), is_one ? "is" : "are", is_one ? "it" : "them")};
}

std::string sandbox_level(const Arguments& arguments) {
    const WorkerOptions options = worker_options(arguments);
    return options.sandbox ? options.sandbox->level() : "off";
}

std::unique_ptr<Candidate> open_candidate(const Arguments& arguments, bool show_stderr) {
    (void)worker_options(arguments);  // with its private folder, of which the guardian has to know
    start_guardian();
    return open(arguments.candidate, arguments, show_stderr);
}

std::unique_ptr<Candidate> completed(std::unique_ptr<Candidate> candidate,
                                     const std::vector<std::string>& asked_for,
                                     const Arguments& arguments) {
    for (const std::string& name : asked_for) {
        const Operator& op = *find_operator(name);
        const auto entries = op.entry_points();
        if (op.is_composition() && !op.implemented_by(candidate->info()) &&
            std::any_of(entries.begin(), entries.end(), [&](const std::string& entry) {
                return candidate->info().implements(entry);
            }))
            return with_builtin(std::move(candidate), arguments);
    }
    return candidate;
}

std::unique_ptr<Candidate> with_forwards(std::unique_ptr<Candidate> candidate,
                                         const Arguments& arguments) {
    for (const auto& op : operators()) {
        const std::string forward = forward_of(*op);
        if (!forward.empty() && op->implemented_by(candidate->info()) &&
            !candidate->info().implements(forward))
            return with_builtin(std::move(candidate), arguments);
    }
    return candidate;
}

std::vector<std::string> unknown_exports(const CandidateInfo& info) {
    constexpr std::size_t kMost = 20, kLongestName = 100;
    constexpr int kResembles = 3;  ///< letters that differ
    std::vector<std::string> known, own_functions, notes;
    for (const auto& op : operators()) {
        known.push_back(op->name());
        for (const std::string& entry : op->entry_points()) known.push_back(entry);
        if (op->is_composition()) own_functions.push_back(op->name() + "_");
    }
    for (const std::string& name : info.operators) {
        const auto is_own = [&](const std::string& prefix) { return name.starts_with(prefix); };
        if (std::ranges::find(known, name) != known.end() ||
            std::ranges::any_of(own_functions, is_own))
            continue;
        const auto nearest = std::ranges::min_element(
            known, {}, [&](const std::string& one) { return edit_distance(name, one); });
        notes.push_back(
            fmt::format("the library exports attncheck_{}, which is no entry point{}",
                        printable_line(name, kLongestName),
                        edit_distance(name, *nearest) <= kResembles
                            ? fmt::format(" (attncheck_{} is one)", *nearest)
                            : ""));
        if (notes.size() == kMost) break;
    }
    return notes;
}

std::vector<std::string> unknown_exports(const CandidateInfo& info, const Arguments& arguments) {
    std::vector<std::string> notes = unknown_exports(info);
    for (const std::string& name : withheld_variables(arguments))
        notes.push_back(fmt::format("the library has the name of the environment variable {}, which stays outside of the sandbox; --env {} lets it in",
                                    printable(name), printable(name)));
    if (arguments.candidate.empty() || arguments.candidate.starts_with(kPythonPrefix)) return notes;
    if (const std::string hint = load_hint(worker_options(arguments).library); !hint.empty())
        notes.push_back(hint);
    return notes;
}

void check_required(const Arguments& arguments, const CandidateInfo& info) {
    for (const std::string& name : arguments.required)
        if (!find_operator(name)->implemented_by(info))
            throw UsageError(
                fmt::format("--require {}: {} does not implement it", name, info.name));
}

namespace {

/// A class that a library chooses for itself may be as wide as it likes.
void check_narrow_enough(const attncheck::ref::RoundingClass& own, const Arguments& arguments) {
    if (arguments.required_precision.empty()) return;
    attncheck::ref::RoundingClass required;
    try {
        required = attncheck::ref::parse_rounding_class(arguments.required_precision);
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format("--require-precision '{}': {}", arguments.required_precision,
                                     e.what()));
    }
    if (attncheck::ref::weaker(own, required) == required) return;
    throw UsageError(fmt::format(
        "--require-precision '{}': the {} declares '{}', which is wider",
        attncheck::ref::print_rounding_class(required),
        arguments.precision.empty() ? "library" : "option --precision",
        attncheck::ref::print_rounding_class(own)));
}

}  // namespace

attncheck::ref::RoundingClass rounding_of(const Arguments& arguments, const Candidate& candidate) {
    const std::string& declared = candidate.info().precision;
    const std::string& text = !arguments.precision.empty() ? arguments.precision
                              : declared.empty()           ? "default"
                                                           : declared;
    try {
        const auto own = attncheck::ref::parse_rounding_class(text);
        check_narrow_enough(own, arguments);
        const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
        return mixed ? attncheck::ref::weaker(own, attncheck::ref::parse_rounding_class(mixed->second().precision))
                     : own;
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format(
            "{} '{}': {}",
            !arguments.precision.empty()                         ? "--precision"
            : arguments.candidate.starts_with(kPythonPrefix) ? "precision= of a kernel"
                                                             : "the library's attncheck_precision()",
            text, e.what()));
    }
}

attncheck::ref::RoundingClass rounding_of(const Arguments& arguments) {
    try {
        return attncheck::ref::parse_rounding_class(arguments.precision.empty() ? "default" : arguments.precision);
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format("--precision '{}': {}", arguments.precision, e.what()));
    }
}

std::string checked_features(const Arguments& arguments, const Candidate& candidate) {
    const std::string& text =
        arguments.features.empty() ? candidate.info().features : arguments.features;
    const char* source = !arguments.features.empty()                        ? "--features"
                         : arguments.candidate.starts_with(kPythonPrefix) ? "features= of a kernel"
                                                                          : "the library's attncheck_features()";
    try {
        for (const std::string& op : operators_of(text)) {
            const Operator* known = find_operator(op);
            if (!known) throw std::invalid_argument(unknown_name("operator", op, operator_names()));
            Scope(*known).restrict_to(features_of(text, op));
        }
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format("{}: {}", source, e.what()));
    }
    return text;
}

}  // namespace attncheck::properties
