// `attncheck verify --judge`: a library that nobody trusts, one JSON object for a program.
#include "properties/cli/judge_mode.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "properties/candidate/sha256.h"
#include "properties/candidate/worker_process.h"
#include "properties/case/printable.h"
#include "properties/cli/names.h"
#include "properties/report/files.h"
#include "properties/report/reward.h"
#include "properties/search/run.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kCases = 40;  ///< of a law: more than kConclusiveCases

std::uint64_t secret_seed() {
    std::random_device system;
    return std::uint64_t{system()} << 32 | system();
}

VerifyOptions options_of(const Arguments& arguments, double loading_s) {
    VerifyOptions options;
    options.operators = arguments.ops;
    options.properties.assign(std::begin(kLadder), std::end(kLadder));
    options.validation = false;
    options.stop_at_first = true;
    options.total_seconds = std::max(0.001, arguments.budget - loading_s);
    options.engine.cases = kCases;
    options.engine.max_counterexamples = 1;
    options.engine.seed = secret_seed();
    options.engine.profile = arguments.profile;
    options.engine.timeout_s = arguments.timeout;
    options.engine.shrink_seconds = std::min(1.0, arguments.budget / 10);
    return options;
}

/// Laws behind the first failure were not begun: they belong to the ladder all the same.
void add_missing_laws(const CandidateInfo& info, const Arguments& arguments, RunReport& report) {
    for (const auto& op : operators()) {
        const bool is_asked_for =
            arguments.ops.empty() || std::ranges::find(arguments.ops, op->name()) != arguments.ops.end();
        if (!is_asked_for || !op->implemented_by(info)) continue;
        for (const Property& property : op->properties()) {
            const auto is_this = [&](const PropertyReport& p) {
                return p.op == op->name() && p.property == property.name;
            };
            if (std::ranges::find(kLadder, property.name) == std::end(kLadder) ||
                std::ranges::any_of(report.properties, is_this))
                continue;
            PropertyReport& missing = report.properties.emplace_back();
            missing.op = op->name();
            missing.property = property.name;
            missing.status = PropertyReport::Status::inconclusive;
            missing.note = "not begun";
        }
    }
}

nlohmann::json object_of(const RunReport& report, const Grade& grade) {
    nlohmann::json out{{"schema", 1},
             {"candidate", report.candidate},
             {"verdict", grade.verdict},
             {"reward", grade.reward},
             {"feedback", grade.feedback},
             {"exit_status", grade.verdict == "partial" ? kNothingChecked : exit_status(report)},
             {"sandbox", report.sandbox},
             {"precision", report.precision},
             {"library_sha256", report.library_sha256},
             {"seed", report.seed},
             {"seconds", report.duration_s},
             {"laws", nlohmann::json::array()}};
    for (const PropertyReport& p : report.properties)
        if (p.status != PropertyReport::Status::not_implemented)
            out["laws"].push_back({{"op", p.op},
                                   {"law", p.property},
                                   {"status", name_of(p.status)},
                                   {"cases", p.cases}});
    if (grade.law && !grade.law->counterexamples.empty()) {
        const Counterexample& found = grade.law->counterexamples.front();
        out["op"] = grade.law->op;
        out["law"] = grade.law->property;
        out["failure"] = found.failure;
        out["case"] = print(found.spec);
        out["case_as_found"] = print(found.original);
    }
    return out;
}

int write(const Arguments& arguments, const nlohmann::json& object) {
    const std::string text = object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (arguments.json.empty() || arguments.json == "-")
        std::cout << text;
    else
        write_file(arguments.json, text);
    return object.at("exit_status");
}

}  // namespace

int judge_mode(Arguments arguments) {
    if (arguments.candidate.empty()) throw UsageError("--judge needs --candidate");
    for (const auto* names : {&arguments.ops, &arguments.required})
        for (const std::string& name : *names) (void)operator_named(name);
    // A call that hangs is run twice before it counts, and the budget has to hold both.
    constexpr double kOfBudget = 0.4;
    arguments.timeout = std::min(arguments.timeout, kOfBudget * arguments.budget);
    if (arguments.sandbox == SandboxMode::off)
        throw UsageError("--judge runs in a sandbox: --sandbox is off, allowed: on, strict");
    // A library that nobody trusts chooses neither its rounding class nor its cases.
    if (arguments.precision.empty()) arguments.precision = "default";
    const double start = system_clock().now();
    try {
        auto candidate = open_candidate(arguments, false);
        check_required(arguments, candidate->info());
        VerifyOptions options = options_of(arguments, system_clock().now() - start);
        options.engine.rounding = rounding_of(arguments, *candidate);
        options.engine.features = arguments.features.empty() ? "" : checked_features(arguments, *candidate);
        const CandidateInfo info = candidate->info();
        RunReport report;
        report.candidate = info.name;
        report.library = arguments.candidate;
        report.precision = attncheck::ref::print_rounding_class(options.engine.rounding);
        report.profile = arguments.profile;
        report.seed = options.engine.seed;
        report.sandbox = sandbox_level(arguments);
        report.library_sha256 = sha256_of_files({worker_options(arguments).library});
        catch_interrupts();
        candidate.reset();
        std::ostringstream unread;  // messages have expected values
        verify_side_by_side(
            info, [&] { return open_candidate(arguments, false); }, 1, options, system_clock(),
            report, unread, nullptr);
        end_left_processes();
        add_missing_laws(info, arguments, report);
        if (!arguments.features.empty()) report.taken.clear();  // the command allows it
        return write(arguments, object_of(report, grade_of(report, kCases)));
    } catch (const LoadError& e) {
        return write(arguments, {{"schema", 1},
                                 {"candidate", arguments.candidate},
                                 {"verdict", "not_loaded"},
                                 {"reward", 0.0},
                                 {"feedback", printable(e.what())},
                                 {"exit_status", kUsage}});
    }
}

}  // namespace attncheck::properties
