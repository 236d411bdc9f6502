// `attncheck verify`: from its arguments to a run and its reports.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>
#include <tuple>

#include "properties/cli/command.h"
#include "properties/cli/names.h"
#include "properties/cli/report_files.h"
#include "properties/search/large.h"
#include "properties/candidate/candidate_option.h"
#include "properties/candidate/mixed_candidate.h"
#include "properties/candidate/python_candidate.h"
#include "properties/candidate/sha256.h"
#include "properties/candidate/worker_process.h"
#include "properties/case/printable.h"
#include "properties/report/baseline.h"
#include "properties/report/exit_status.h"
#include "properties/report/files.h"
#include "properties/report/json.h"
#include "properties/report/last_report.h"
#include "properties/report/resume.h"
#include "properties/report/table.h"
#include "properties/report/terminal.h"
#include "properties/judge/rules.h"
#include "properties/search/run.h"
#include "properties/search/waiver.h"

namespace attncheck::properties {
namespace {

void check_names(const Arguments& arguments) {
    for (const auto* ops : {&arguments.ops, &arguments.required})
        for (const std::string& name : *ops) (void)operator_named(name);
    const std::vector<std::string> known = property_names();
    for (const std::string& name : arguments.properties)
        if (std::ranges::find(known, name) == known.end())
            throw UsageError(unknown_name("property", name, known));
    const auto has_any = [&](const std::string& op) {
        return std::ranges::any_of(arguments.properties, [&](const std::string& name) { return operator_named(op).property(name); });
    };
    if (!arguments.ops.empty() && !arguments.properties.empty() && std::ranges::none_of(arguments.ops, has_any))
        throw UsageError(fmt::format("{} has no property '{}'", fmt::join(arguments.ops, ", "), fmt::join(arguments.properties, "', '")));
}

constexpr const char* kOneShard = "1/1";  ///< the whole run

std::pair<int, int> parse_shard(const std::string& text) {
    int index = 0, count = 0;
    char slash = 0, more = 0;
    std::istringstream in(text);
    if (!(in >> index >> slash >> count) || slash != '/' || (in >> more) || count < 1 ||
        count > 10'000 || index < 1 || index > count)
        throw UsageError(
            fmt::format("--shard is '{}', expected I/N with 1 <= I <= N <= 10000", text));
    return {index - 1, count};
}

/// --shard, or what runners of tests in shards set for GoogleTest's programs:
/// https://google.github.io/googletest/advanced.html#distributing-test-functions-to-multiple-machines
std::string shard_of(const Arguments& arguments) {
    const char* const total = std::getenv("GTEST_TOTAL_SHARDS");
    const char* const index = std::getenv("GTEST_SHARD_INDEX");
    if (arguments.shard != kOneShard || (!total && !index)) return arguments.shard;
    if (!total || !index)
        throw UsageError(fmt::format("{} is set and {} is not: a shard needs both, or --shard", total ? "GTEST_TOTAL_SHARDS" : "GTEST_SHARD_INDEX",
                                     total ? "GTEST_SHARD_INDEX" : "GTEST_TOTAL_SHARDS"));
    int number = -1;
    const std::string text = index;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || number < 0)
        throw UsageError(fmt::format("GTEST_SHARD_INDEX is '{}', expected a whole number from 0", text));
    const std::string shard = fmt::format("{}/{}", std::int64_t{number} + 1, total);
    try {
        (void)parse_shard(shard);
    } catch (const UsageError&) {
        throw UsageError(fmt::format("GTEST_SHARD_INDEX is '{}' and GTEST_TOTAL_SHARDS '{}', expected a number of shards up to 10000 and an index below it", text, total));
    }
    // The runner learns from this file that the program knows of shards.
    if (const char* const status = std::getenv("GTEST_SHARD_STATUS_FILE")) std::ofstream{status};
    return shard;
}

/// A process for each core, but no more than four unasked: each may use as much memory as --memory
/// says.
int default_jobs() {
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

std::string digest_of_library(const Arguments& arguments) {
    const WorkerOptions chosen = worker_options(arguments);
    std::vector<std::string> paths{chosen.library};
    std::istringstream names(chosen.behind);
    for (std::string name; std::getline(names, name, ',');) paths.push_back(name);
    return sha256_of_files(paths);
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? printable_line(name, sizeof name) : "";
}

/// The time in the form of ISO 8601, in UTC.
std::string date_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char text[32] = {};
    gmtime_r(&now, &parts);
    return std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0 ? text : "";
}

/// Of the whole run; 0: no limit.
double seconds_of(const Arguments& arguments) {
    const bool is_told = arguments.seconds > 0 || arguments.cases >= 0 || arguments.thorough || arguments.large > 0;
    return is_told ? arguments.seconds : kUsualSeconds;
}

/// What a run covered that ended because nobody said how long it may take.
std::string usual_end(const RunReport& report) {
    if (report.duration_s < 0.8 * kUsualSeconds) return {};  // nothing was left to do: none is implemented, or all are declined
    std::int64_t searched = 0, enough = 0;
    for (const PropertyReport& p : report.properties) {
        searched += p.cases > 0;
        enough += p.cases >= kConclusiveCases;
    }
    return fmt::format("the usual {} s are over: {} of {} properties met {} cases or more; --time S or "
                       "--thorough check more\n",
                       kUsualSeconds, enough, searched, kConclusiveCases);
}

/// What decides about verdicts; --jobs, reports and --corpus do not.
std::vector<std::pair<std::string, std::string>> deciding_options(const Arguments& arguments) {
    return {{"profile", std::string(name_of(arguments.profile))},
            {"precision", arguments.precision},
            {"features", arguments.features},
            {"operators", fmt::format("{}", fmt::join(arguments.ops, " "))},
            {"properties", fmt::format("{}", fmt::join(arguments.properties, " "))},
            {"cases", std::to_string(arguments.thorough ? kThoroughCases : arguments.cases)},
            {"seconds", fmt::format("{:g}", seconds_of(arguments))},
            {"sandbox", std::string(name_of(arguments.sandbox))},
            {"env", fmt::format("{}", fmt::join(arguments.variables, " "))},
            {"timeout", fmt::format("{:g}", arguments.timeout)},
            {"memory", std::to_string(arguments.memory)},
            {"rule", arguments.rule},
            {"waivers_sha256", arguments.waive.empty() ? "" : sha256_of_files({arguments.waive})},
            {"validation", arguments.no_validation ? "no" : "yes"},
            {"stop_at_first", arguments.stop_at_first ? "yes" : "no"},
            {"large", std::to_string(arguments.large)},
            {"samples", std::to_string(arguments.samples)}};
}

/// Waivers that matched no failure: the deviation is gone, or the waiver names something else.
std::vector<std::string> unused_waivers(const std::vector<Waiver>& waivers,
                                        const RunReport& report) {
    std::vector<std::string> notes;
    for (const Waiver& waiver : waivers) {
        const bool is_used = std::ranges::any_of(report.properties, [&](const auto& p) {
            return (waiver.op == "*" || waiver.op == p.op) &&
                   (waiver.property == "*" || waiver.property == p.property) &&
                   std::ranges::find(p.waivers, waiver.reason) != p.waivers.end();
        });
        if (!is_used)
            notes.push_back(fmt::format("no failure matched the waiver '{}'", waiver.text()));
    }
    return notes;
}

InterruptedRun run_to_resume(const std::string& path) {
    try {
        return interrupted_run_from(read_report(path), schemas());
    } catch (const std::runtime_error& e) {
        throw UsageError(fmt::format("--resume {}: {}", path, e.what()));
    }
}

void go_on_with(const InterruptedRun& before, const std::string& path, const RunReport& report,
                VerifyOptions& options) {
    try {
        check_same_run(before, report);
    } catch (const std::runtime_error& e) {
        throw UsageError(fmt::format("--resume {}: {}", path, e.what()));
    }
    options.finished = before.finished;
    options.begun = before.begun;
}

/// Those of a baseline that this version and profile take.
std::vector<KnownCase> known_cases(const Arguments& arguments) {
    std::vector<KnownCase> cases;
    for (const CaseOfBaseline& one : cases_of_baseline(read_report(arguments.baseline))) {
        const Operator* const op = find_operator(one.op);
        if (op == nullptr || op->property(one.property) == nullptr) continue;
        try {
            KnownCase known{one.op, one.property, parse(one.line, schemas())};
            known.spec.profile = arguments.profile;
            if (known.spec.schema->op == one.op && !op->illegal(known.spec)) cases.push_back(std::move(known));
        } catch (const std::invalid_argument&) {  // of a version with other fields
        }
    }
    return cases;
}

/// A job that is run again after a crash has the same command each time: where the report that it writes is not there yet, it begins.
bool is_first_start(const Arguments& arguments) {
    return !arguments.resume.empty() && !arguments.json.empty() && is_same_file(arguments.resume, arguments.json) &&
           !std::filesystem::exists(arguments.resume);
}

/// The operators that the candidate has itself: what completes it is not under test.
void leave_out_completions(const Candidate& candidate, std::vector<std::string>& ops) {
    const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
    if (!mixed) return;
    if (ops.empty())
        for (const auto& op : operators()) ops.push_back(op->name());
    std::erase_if(ops, [&](const std::string& op) { return !mixed->first().implements(op); });
}

}  // namespace

int verify_command(const Arguments& arguments) {
    check_names(arguments);
    for (const std::string& variable : arguments.variables)
        if (variable.find('=') != std::string::npos)
            throw UsageError(fmt::format("--env is '{}', expected the name of a variable: its value is the one that this program has", variable));
    check_report_paths(arguments);
    VerifyOptions options;
    options.operators = arguments.ops;
    options.properties = arguments.properties;
    options.validation = !arguments.no_validation;
    options.stop_at_first = arguments.stop_at_first;
    if (arguments.stop_at_first) options.engine.max_counterexamples = 1;
    options.engine.shrink_seconds = arguments.shrink;
    options.engine.explains = true;
    options.engine.small_plain_first = arguments.candidate.starts_with(kPythonPrefix);
    const double seconds = seconds_of(arguments);
    options.total_seconds = seconds;
    if (!arguments.rule.empty()) {
        for (const std::string& name : arguments.properties)
            if (name != "agreement")
                throw UsageError(fmt::format("--rule judges agreement and nothing else, but --property is '{}'", name));
        options.engine.rule = find_rule(arguments.rule);
        options.properties = {"agreement"};
    }
    std::optional<InterruptedRun> before;
    const bool is_first = is_first_start(arguments);
    if (!arguments.resume.empty() && !is_first) before = run_to_resume(arguments.resume);
    if (before && options.total_seconds > 0)  // of the time of the whole run; what is begun needs some
        options.total_seconds = std::max(seconds - before->duration_s, seconds / 10);
    const std::string shard = shard_of(arguments);
    // Shards of one run must agree on the seed without being told.
    const std::uint64_t seed = arguments.seed             ? *arguments.seed
                               : before                   ? before->seed
                               : shard != kOneShard       ? 1
                                                          : std::random_device{}();
    options.engine.seed = seed;
    options.engine.profile = arguments.profile;
    options.engine.replay_only = arguments.cases == 0;
    if (arguments.cases == 0 && arguments.corpus.empty() && arguments.baseline.empty())
        throw UsageError("--cases is 0, expected at least 1 unless --corpus or --baseline gives cases to replay");
    std::optional<Corpus> corpus;
    if (!arguments.corpus.empty()) 
        options.corpus = &corpus.emplace(arguments.corpus, arguments.profile);
    if (corpus && !options.engine.replay_only) corpus->check_writable();
    if (!arguments.baseline.empty()) options.known_cases = known_cases(arguments);
    options.engine.cases = arguments.cases >= 0 ? arguments.cases
                           : arguments.thorough ? kThoroughCases
                                                : 0;
    options.engine.timeout_s = arguments.timeout;
    std::tie(options.engine.shard, options.engine.shards) = parse_shard(shard);
    if (!arguments.waive.empty()) options.engine.waivers = read_waivers(arguments.waive, operators());

    options.engine.samples = arguments.samples;
    const double start = system_clock().now();
    auto candidate = completed(open_candidate(arguments, false), arguments.ops, arguments);
    options.loading_seconds = system_clock().now() - start;
    if (arguments.large > 0) {
        candidate = with_forwards(std::move(candidate), arguments);
        leave_out_completions(*candidate, options.operators);
    }
    check_required(arguments, candidate->info());
    options.engine.rounding = rounding_of(arguments, *candidate);
    options.engine.features = checked_features(arguments, *candidate);
    const CandidateInfo info = candidate->info();
    RunReport report;
    report.candidate = info.name;
    report.precision_option = arguments.precision;
    report.python_option = arguments.python;
    report.precision = attncheck::ref::print_rounding_class(options.engine.rounding);
    report.library = arguments.candidate;
    report.profile = arguments.profile;
    report.seed = seed;
    report.samples = arguments.samples;
    report.library_sha256 = digest_of_library(arguments);
    report.sandbox = sandbox_level(arguments);
    report.replay_options = replay_options(arguments);
    report.version = ATTNCHECK_VERSION;
    report.host = host_name();
    report.shard = options.engine.shard;
    report.shards = options.engine.shards;
    report.options = deciding_options(arguments);
    if (arguments.large > 0)
        for (const std::string& name : arguments.ops)
            if (!find_operator(name)->property("sampled"))
                report.notes.push_back(fmt::format("{} has no problems of full size: --large checks nothing of it", name));
    if (before) go_on_with(*before, arguments.resume, report, options);
    if (before && before->is_over) {
        const std::string text = read_report(arguments.resume);
        const MergedReport told = merge_json({{arguments.resume, text}});
        say("{}{} is of this run, which came to its end: {}\n", told.table, arguments.resume, verdict_of(before->exit_status));
        return finish_report(arguments, text, before->exit_status);
    }
    if (is_first) report.notes.push_back(fmt::format("{} of --resume is not there yet: the run begins", arguments.resume));
    catch_interrupts();
    if (corpus) report.notes = corpus->warnings();
    if (corpus && !std::filesystem::exists(arguments.corpus))
        report.notes.push_back(fmt::format("the folder {} of --corpus is not there yet: nothing was replayed", arguments.corpus));
    for (const auto& more : {unset_variables(arguments), unknown_exports(info, arguments)})
        std::ranges::copy(more, std::back_inserter(report.notes));
    // A library can read files: what is saved on the way has the seed.
    if (!arguments.json.empty() && is_replaceable(arguments.json) && !arguments.secret_seed)
        options.save = [&arguments](const RunReport& now) {
            try {
                write_file(arguments.json, to_json(now));
            } catch (const std::exception&) {
                // The disk may be full for a while: the report at the end counts.
            }
        };
    prepare_terminal(std::cout, STDOUT_FILENO);
    say("checking {}, seed {}\n", report.candidate,
        arguments.secret_seed ? "told at the end" : std::to_string(seed));
    if (before)
        say("{} finished properties are taken over from {}, {} go on\n", options.finished.size(), arguments.resume,
            options.begun.size());
    std::cout.flush();
    std::ostream* const progress = isatty(STDERR_FILENO) ? &std::cerr : nullptr;
    const auto open_again = [&] {
        auto again = completed(open_candidate(arguments, false), arguments.ops, arguments);
        return arguments.large > 0 ? with_forwards(std::move(again), arguments) : std::move(again);
    };
    if (arguments.large == 0) note_sources(*candidate, options, report);
    candidate.reset();  // each process opens its own
    if (arguments.large > 0) {
        verify_large(info, open_again, options, arguments.large, system_clock(), report, std::cout);
    } else {
        const int jobs = arguments.stop_at_first ? 1  // which is first depends on nothing else
                         : arguments.jobs > 0    ? arguments.jobs
                                                 : default_jobs();
        verify_side_by_side(info, open_again, jobs, options, system_clock(), report, std::cout,
                            progress);
    }
    if (before) report.duration_s += before->duration_s;
    end_left_processes();  // of a process of the run that was ended
    if (!report.interrupted && report.shards == 1)  // what one shard does not need another may
        std::ranges::copy(unused_waivers(options.engine.waivers, report),
                          std::back_inserter(report.notes));
    if (arguments.seconds == 0 && seconds > 0 && !report.interrupted && !arguments.stop_at_first)
        say("{}", fitted(std::cout, usual_end(report), 2));
    report.date = date_now();
    const int status = exit_status(report);
    const std::string json = to_json(report);
    report.is_kept = status != kFalsified || keep_last_report(json);
    print_table(std::cout, report, arguments.verbose);
    return finish_report(arguments, json, status);
}

}  // namespace attncheck::properties
