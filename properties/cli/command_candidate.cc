// The candidate that the arguments of a command ask for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/candidate/candidate_option.h"
#include "properties/cli/command.h"
#include "properties/search/clock.h"
#include "properties/search/large.h"
#include "properties/search/survey.h"
#include "properties/candidate/mixed_candidate.h"
#include "properties/candidate/worker_candidate.h"

namespace attncheck::properties {

namespace {

std::unique_ptr<Candidate> open(const std::string& library, const Arguments& arguments,
                                bool show_stderr) {
    WorkerOptions options;
    choose_library(library, options);
    options.profile = arguments.profile;
    options.timeout_s = arguments.timeout;
    options.memory_mib = arguments.memory;
    options.show_stderr = show_stderr;
    options.stopped = [] { return system_clock().interrupted(); };
    return open_worker_candidate(options);
}

std::unique_ptr<Candidate> with_builtin(std::unique_ptr<Candidate> candidate,
                                        const Arguments& arguments) {
    return std::make_unique<MixedCandidate>(std::move(candidate), open({}, arguments, false));
}

}  // namespace

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

std::string checked_features(const Arguments& arguments, const Candidate& candidate) {
    const std::string& text =
        arguments.features.empty() ? candidate.info().features : arguments.features;
    const char* source = arguments.features.empty() ? "the library's attncheck_features()" : "--features";
    try {
        for (const std::string& op : operators_of(text)) {
            const Operator* known = find_operator(op);
            if (!known) {
                std::vector<std::string> names;
                for (const auto& one : operators()) names.push_back(one->name());
                throw std::invalid_argument(
                    fmt::format("unknown operator '{}', known: {}", op, fmt::join(names, " ")));
            }
            Scope(*known).restrict_to(features_of(text, op));
        }
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format("{}: {}", source, e.what()));
    }
    return text;
}

}  // namespace attncheck::properties
