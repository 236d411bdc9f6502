// The candidate that the arguments of a command ask for.
#include <fmt/format.h>

#include <algorithm>

#include "properties/candidate/candidate_option.h"
#include "properties/cli/command.h"
#include "properties/search/clock.h"
#include "properties/search/large.h"
#include "properties/candidate/mixed_candidate.h"
#include "properties/candidate/python_candidate.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/operators/entry_table.h"

namespace attncheck::properties {

namespace {

WorkerOptions options_for(const std::string& library, const Arguments& arguments) {
    WorkerOptions options;
    if (library.starts_with(kPythonPrefix))
        choose_python(library.substr(kPythonPrefix.size()), arguments.python, entry_table_json(),
                      options);
    else
        choose_library(library, options);
    options.profile = arguments.profile;
    options.timeout_s = arguments.timeout;
    options.memory_mib = arguments.memory;
    options.stopped = [] { return system_clock().interrupted(); };
    return options;
}

std::unique_ptr<Candidate> open(const std::string& library, const Arguments& arguments,
                                bool show_stderr) {
    WorkerOptions options = options_for(library, arguments);
    options.show_stderr = show_stderr;
    return open_worker_candidate(options);
}

std::unique_ptr<Candidate> with_builtin(std::unique_ptr<Candidate> candidate,
                                        const Arguments& arguments) {
    return std::make_unique<MixedCandidate>(std::move(candidate), open({}, arguments, false));
}

}  // namespace

WorkerOptions worker_options(const Arguments& arguments) {
    return options_for(arguments.candidate, arguments);
}

std::unique_ptr<Candidate> open_candidate(const Arguments& arguments, bool show_stderr) {
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

attncheck::ref::RoundingClass rounding_of(const Arguments& arguments, const Candidate& candidate) {
    const std::string& declared = candidate.info().precision;
    const std::string& text = !arguments.precision.empty() ? arguments.precision
                              : declared.empty()           ? "default"
                                                           : declared;
    try {
        const auto own = attncheck::ref::parse_rounding_class(text);
        const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
        return mixed ? attncheck::ref::weaker(own, attncheck::ref::parse_rounding_class(mixed->second().precision))
                     : own;
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format(
            "{} '{}': {}",
            arguments.precision.empty() ? "the library's attncheck_precision()" : "--precision",
            text, e.what()));
    }
}

}  // namespace attncheck::properties
