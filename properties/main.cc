// The command line: attncheck list | verify | reproduce | merge | mutants.
// Exit status: 0 every property held; 1 some property was falsified; 2 usage, or the library cannot
// be loaded; 3 nothing was checked; 130 interrupted before anything was falsified.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "properties/candidate_option.h"
#include "properties/large.h"
#include "properties/mixed_candidate.h"
#include "properties/mutants_command.h"
#include "properties/report.h"
#include "properties/rules.h"
#include "properties/run.h"
#include "properties/waiver.h"
#include "properties/worker_candidate.h"

namespace {

using namespace attncheck::properties;

constexpr const char* kSamplesText =
    "random rows, and random keys, that `sampled` looks at beside the boundaries";
constexpr int kUsage = 2, kNothingChecked = 3, kInterrupted = 130;

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Arguments {
    std::string candidate, profile = "ascend910b", precision, shard = "1/1", waive, json, junit,
                           html, corpus, rule, case_line, property, merged;
    std::vector<std::string> ops, properties, files;
    std::int64_t cases = -1, memory = 8192;
    double seconds = 0, timeout = 10;
    std::optional<std::uint64_t> seed;
    int jobs = 0;
    bool no_validation = false, stop_at_first = false;
    double shrink = 30;
    std::int64_t large = 0, samples = PropertyContext::kSamples;
};

std::unique_ptr<Candidate> open_candidate(const Arguments& arguments, bool show_stderr) {
    WorkerOptions options;
    choose_library(arguments.candidate, options);
    options.timeout_s = arguments.timeout;
    options.memory_mib = arguments.memory;
    options.show_stderr = show_stderr;
    setenv("ATTNCHECK_PROFILE", arguments.profile.c_str(), 1);
    return open_worker_candidate(options);
}

/// With an operator that a composition needs and the candidate lacks, the built-in one takes its
/// place, if the composition is asked for by name and the candidate has some operator of it.
std::unique_ptr<Candidate> completed(std::unique_ptr<Candidate> candidate,
                                     const std::vector<std::string>& asked_for,
                                     const Arguments& arguments) {
    for (const std::string& name : asked_for) {
        const Operator& op = *find_operator(name);
        const auto entries = op.entry_points();
        if (entries.size() < 2 || op.implemented_by(candidate->info()) ||
            std::none_of(entries.begin(), entries.end(), [&](const std::string& entry) {
                return candidate->info().implements(entry);
            }))
            continue;
        WorkerOptions options;
        choose_library({}, options);
        options.timeout_s = arguments.timeout;
        options.memory_mib = arguments.memory;
        return std::make_unique<MixedCandidate>(std::move(candidate),
                                                open_worker_candidate(options));
    }
    return candidate;
}

/// With a gradient but not its forward, the built-in forward gives the statistics of large cases.
std::unique_ptr<Candidate> with_forwards(std::unique_ptr<Candidate> candidate,
                                         const Arguments& arguments) {
    for (const auto& op : operators()) {
        const std::string forward = forward_of(*op);
        if (forward.empty() || !op->implemented_by(candidate->info()) ||
            candidate->info().implements(forward))
            continue;
        WorkerOptions options;
        choose_library({}, options);
        options.timeout_s = arguments.timeout;
        options.memory_mib = arguments.memory;
        return std::make_unique<MixedCandidate>(std::move(candidate),
                                                open_worker_candidate(options));
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
        return mixed ? weaker(own, attncheck::ref::parse_rounding_class(mixed->second().precision))
                     : own;
    } catch (const std::invalid_argument& e) {
        throw UsageError(fmt::format(
            "{} '{}': {}",
            arguments.precision.empty() ? "the library's attncheck_precision()" : "--precision",
            text, e.what()));
    }
}

void check_names(const Arguments& arguments) {
    std::vector<std::string> ops, properties;
    for (const auto& op : operators()) {
        ops.push_back(op->name());
        for (const auto& property : op->properties())
            if (std::find(properties.begin(), properties.end(), property.name) == properties.end())
                properties.push_back(property.name);
    }
    const auto check = [](const char* what, const auto& given, const auto& known) {
        for (const auto& name : given)
            if (std::find(known.begin(), known.end(), name) == known.end())
                throw UsageError(
                    fmt::format("unknown {} '{}', known: {}", what, name, fmt::join(known, " ")));
    };
    check("operator", arguments.ops, ops);
    check("property", arguments.properties, properties);
}

int list(const Arguments& arguments) {
    std::unique_ptr<Candidate> candidate;
    if (!arguments.candidate.empty()) candidate = open_candidate(arguments, false);
    if (candidate)
        fmt::print(
            "candidate: {}\nprecision: {}\n\n", candidate->info().name,
            candidate->info().precision.empty() ? "not declared" : candidate->info().precision);
    for (const auto& op : operators()) {
        fmt::print("{}{}\n", op->name(),
                   !candidate                              ? ""
                   : op->implemented_by(candidate->info()) ? "  (implemented)"
                                                           : "  (not implemented)");
        for (const auto& property : op->properties())
            fmt::print("  {:<20} {}\n", property.name, property.summary);
    }
    return 0;
}

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

/// A process for each core, but no more than four unasked: each may use as much memory as --memory
/// says.
int default_jobs() {
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

/// The operators that the candidate has itself: what completes it is not under test.
void leave_out_completions(const Candidate& candidate, std::vector<std::string>& ops) {
    const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
    if (!mixed) return;
    if (ops.empty())
        for (const auto& op : operators()) ops.push_back(op->name());
    std::erase_if(ops, [&](const std::string& op) { return !mixed->first().implements(op); });
}

int verify_command(const Arguments& arguments) {
    check_names(arguments);
    for (const auto& path : {arguments.json, arguments.junit, arguments.html})
        if (!path.empty()) check_writable(path);
    VerifyOptions options;
    options.operators = arguments.ops;
    options.properties = arguments.properties;
    options.validation = !arguments.no_validation;
    options.stop_at_first = arguments.stop_at_first;
    if (arguments.stop_at_first) options.engine.max_counterexamples = 1;
    options.engine.shrink_seconds = arguments.shrink;
    options.total_seconds = arguments.seconds;
    if (!arguments.rule.empty()) {
        options.engine.rule = find_rule(arguments.rule);
        options.properties = {"agreement"};
    }
    // Shards of one run must agree on the seed without being told.
    const std::uint64_t seed = arguments.seed             ? *arguments.seed
                               : arguments.shard != "1/1" ? 1
                                                          : std::random_device{}();
    options.engine.seed = seed;
    constexpr std::int64_t kDefaultCases = 100;
    options.engine.replay_only = arguments.cases == 0;
    if (arguments.cases == 0 && arguments.corpus.empty())
        throw UsageError("--cases is 0, expected at least 1 unless --corpus gives cases to replay");
    std::optional<Corpus> corpus;
    if (!arguments.corpus.empty()) options.corpus = &corpus.emplace(arguments.corpus);
    options.engine.cases = arguments.cases >= 0    ? arguments.cases
                           : arguments.seconds > 0 ? 0
                                                   : kDefaultCases;
    options.engine.timeout_s = arguments.timeout;
    std::tie(options.engine.shard, options.engine.shards) = parse_shard(arguments.shard);
    if (!arguments.waive.empty()) options.engine.waivers = read_waivers(arguments.waive);

    options.engine.samples = arguments.samples;
    auto candidate = completed(open_candidate(arguments, false), arguments.ops, arguments);
    if (arguments.large > 0) {
        candidate = with_forwards(std::move(candidate), arguments);
        leave_out_completions(*candidate, options.operators);
    }
    options.engine.rounding = rounding_of(arguments, *candidate);
    const CandidateInfo info = candidate->info();
    RunReport report;
    report.candidate = info.name;
    report.precision_option = arguments.precision;
    report.precision = attncheck::ref::print_rounding_class(options.engine.rounding);
    report.library = arguments.candidate;
    report.seed = seed;
    report.samples = arguments.samples;
    catch_interrupts();
    fmt::print("checking {}, seed {}\n", report.candidate, seed);
    std::cout.flush();
    std::ostream* const progress = isatty(STDERR_FILENO) ? &std::cerr : nullptr;
    const int jobs = arguments.jobs > 0 ? arguments.jobs : default_jobs();
    if (arguments.large > 0) {
        verify_large(*candidate, options, arguments.large, system_clock(), report, std::cout);
    } else if (jobs == 1 || arguments.stop_at_first) {
        verify(*candidate, options, system_clock(), report, std::cout, progress);
    } else {
        note_sources(*candidate, options, report);
        candidate.reset();  // each process opens its own
        verify_side_by_side(
            info,
            [&] { return completed(open_candidate(arguments, false), arguments.ops, arguments); },
            jobs, options, system_clock(), report, std::cout, progress);
    }
    print_table(std::cout, report);
    if (!arguments.json.empty()) write_file(arguments.json, to_json(report));
    if (!arguments.junit.empty()) write_file(arguments.junit, to_junit(report));
    if (!arguments.html.empty()) write_file(arguments.html, to_html(report));
    const int status = exit_status(report);
    return report.interrupted && status != 1 ? kInterrupted : status;
}

int reproduce(const Arguments& arguments) {
    Spec spec;
    try {
        spec = parse(arguments.case_line, schemas());
    } catch (const std::invalid_argument& e) {
        throw UsageError(e.what());
    }
    const Operator& op = *find_operator(spec.schema->op);
    if (const auto why = op.illegal(spec)) throw UsageError("case: " + *why);
    if (!arguments.property.empty() && !op.property(arguments.property)) {
        std::vector<std::string> known;
        for (const auto& property : op.properties()) known.push_back(property.name);
        throw UsageError(fmt::format("{} has no property '{}', known: {}", op.name(),
                                     arguments.property, fmt::join(known, " ")));
    }
    const bool is_large = arguments.property == "sampled" && spec.edits.empty();
    Call call;
    try {
        call = is_large ? op.outline(spec) : op.build(spec);
    } catch (const std::invalid_argument& e) {
        throw UsageError(e.what());
    }
    auto candidate = completed(open_candidate(arguments, true), {op.name()}, arguments);
    if (is_large) candidate = with_forwards(std::move(candidate), arguments);
    fmt::print("case      {}\ncandidate {}\n", print(spec), candidate->info().name);
    for (const auto& [entry, source] : sources_of(op, *candidate))
        if (op.implemented_by(candidate->info())) fmt::print("  {:<27} of {}\n", entry, source);
    for (const Tensor& tensor : call.tensors)
        fmt::print("  {:<12} {} [{}] strides [{}]{}{}\n", tensor.name,
                   attncheck::ref::dtype_name(tensor.type()), fmt::join(tensor.shape, ","),
                   fmt::join(tensor.strides, ","), tensor.output ? " output" : "",
                   tensor.present ? "" : " absent");
    for (const HostArray& array : call.arrays)
        fmt::print("  {:<12} {}\n", array.name,
                   array.present ? fmt::format("[{}]", fmt::join(array.values, ",")) : "absent");
    for (const Number& number : call.numbers)
        fmt::print("  {:<12} {}\n", number.name, number.value);
    const auto ruling = op.rule(call);
    fmt::print("  by the contract: {}\n\n",
               ruling.accepted() ? "legal" : fmt::format("{} ({})", ruling.status, ruling.message));
    if (!op.implemented_by(candidate->info())) {
        fmt::print("{} is not implemented by this library\n", op.name());
        return kNothingChecked;
    }
    PropertyContext context{*candidate, rounding_of(arguments, *candidate), nullptr,
                            arguments.samples};
    int checked = 0, falsified = 0;
    for (const Property& property : op.properties()) {
        if (!arguments.property.empty() && property.name != arguments.property) continue;
        if (property.validation ? spec.edits.empty() : !spec.edits.empty()) continue;
        if (property.domain && !property.domain(spec)) {
            fmt::print("{:<20} outside its domain\n", property.name);
            continue;
        }
        const Verdict verdict = check_case(property, spec, context);
        switch (verdict.kind) {
            case Verdict::Kind::held:
                ++checked;
                fmt::print("{:<20} held, worst error {:.3g} of its bound\n", property.name,
                           verdict.worst_ratio);
                if (!verdict.message.empty()) fmt::print("{}\n", verdict.message);
                break;
            case Verdict::Kind::failed:
                ++checked;
                ++falsified;
                fmt::print("{:<20} FALSIFIED: {}\n  {}\n", property.name, verdict.failure,
                           verdict.message);
                break;
            case Verdict::Kind::declined:
                fmt::print("{:<20} declined\n", property.name);
                break;
            case Verdict::Kind::inapplicable:
                fmt::print("{:<20} does not apply to this case\n", property.name);
                break;
        }
    }
    if (falsified > 0) return 1;
    if (checked == 0) fmt::print("nothing was checked\n");
    return checked == 0 ? kNothingChecked : 0;
}

int merge(const Arguments& arguments) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const auto& path : arguments.files) {
        std::ifstream in(path, std::ios::binary);
        if (!in) throw UsageError(fmt::format("cannot read {}", path));
        std::ostringstream text;
        text << in.rdbuf();
        texts.emplace_back(path, text.str());
    }
    const MergedReport merged = merge_json(texts);
    if (arguments.json.empty()) {
        std::cout << merged.json;
        std::cerr << merged.table;
    } else {
        write_file(arguments.json, merged.json);
        std::cout << merged.table;
    }
    return merged.exit_status;
}

void add_candidate_options(CLI::App& command, Arguments& arguments) {
    command
        .add_option("--candidate", arguments.candidate,
                    "shared library to check, or aclnn:LIB,... for libraries with the vendor's "
                    "two-phase functions (aclnn: alone: the default ones); the built-in "
                    "implementation if left out")
        ->type_name("LIB");
    command
        .add_option("--precision", arguments.precision,
                    "rounding class: default, fp32, or a list of acc=, p=, ds=, sum=, ftz= such as "
                    "'acc=fp32 p=half ds=half sum=rounded'")
        ->type_name("PROFILE");
    command
        .add_option("--profile", arguments.profile,
                    "platform profile handed to the library as ATTNCHECK_PROFILE")
        ->check(CLI::IsMember({"ascend910b", "ascend910_93", "ascend950"}))
        ->capture_default_str();
    command.add_option("--timeout", arguments.timeout, "time limit of one call, in seconds")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    command.add_option("--memory", arguments.memory, "limit on the library's own resident memory")
        ->type_name("MIB")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{
        "attncheck finds the smallest case on which an attention kernel is wrong, or says how "
        "close to the rounding limit it is."};
    app.footer(
        "Exit status: 0 every property held; 1 some property was falsified; 2 usage, or the "
        "library cannot be loaded;\n"
        "3 nothing was checked; 130 interrupted before anything was falsified.\n\n"
        "Example: attncheck verify --candidate ./libmykernel.so --op nsa_compress_grad");
    app.require_subcommand(1);

    CLI::App* list_command =
        app.add_subcommand("list", "operators, properties, and what a library implements");
    list_command
        ->add_option("--candidate", arguments.candidate, "shared library to ask, or aclnn:LIB,...")
        ->type_name("LIB");

    CLI::App* verify =
        app.add_subcommand("verify", "check a library: every property over generated cases");
    add_candidate_options(*verify, arguments);
    verify->add_option("--op", arguments.ops, "only this operator (may be given several times)")
        ->type_name("NAME");
    verify
        ->add_option("--property", arguments.properties,
                     "only this property (may be given several times)")
        ->type_name("NAME");
    verify
        ->add_option(
            "--cases", arguments.cases,
            "cases per property; 100, or as many as --time allows; 0 only replays --corpus")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
    verify->add_option("--time", arguments.seconds, "time for the whole run, in seconds")
        ->check(CLI::Range(0.001, 1e9));
    verify->add_option(
        "--seed", arguments.seed,
        "the same seed gives the same cases; a new one each run if left out, 1 for shards");
    verify
        ->add_option("--shard", arguments.shard,
                     "run the I-th of N parts; merge their JSON reports")
        ->type_name("I/N");
    verify
        ->add_option("--jobs", arguments.jobs,
                     "properties checked at once, each in a process of its own; one for each core, "
                     "at most 4, if left out")
        ->check(CLI::Range(1, 256));
    verify->add_flag("--no-validation", arguments.no_validation,
                     "the library checks no arguments: run legal cases only");
    verify->add_flag("--stop-at-first", arguments.stop_at_first,
                     "end the run after the first counterexample");
    verify->add_option("--shrink", arguments.shrink, "time limit for shrinking one counterexample")
        ->type_name("SECONDS")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verify
        ->add_option("--waive", arguments.waive,
                     "known deviations: counted and shown, not reported as failures")
        ->type_name("FILE");
    verify
        ->add_option("--rule", arguments.rule,
                     "judge agreement, and nothing else, by the tolerance of another project in "
                     "place of the error bounds")
        ->check(CLI::IsMember(rule_names()));
    verify
        ->add_option("--corpus", arguments.corpus,
                     "folder of cases that failed once: replayed first, and extended by what is "
                     "found")
        ->type_name("DIR");
    CLI::Option* const large =
        verify
            ->add_option(
                "--large", arguments.large,
                fmt::format("instead of many small cases a few of full size, about this many "
                            "tokens ({} if no number is given, up to {}), judged by chosen rows "
                            "and keys; --timeout then counts for every 10 GFLOP and 10 million "
                            "elements of a call. "
                            "65536 need 9 GB",
                            kLargeLength, kLongestLarge))
            ->type_name("LENGTH")
            ->expected(0, 1)
            ->default_str(std::to_string(kLargeLength))
            ->check(CLI::Range(std::int64_t{256}, kLongestLarge));
    for (const char* other : {"--cases", "--property", "--time", "--shard", "--rule", "--corpus"})
        large->excludes(verify->get_option(other));
    verify->add_option("--samples", arguments.samples, kSamplesText)
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    verify->add_option("--json", arguments.json, "write the report as JSON")->type_name("FILE");
    verify->add_option("--junit", arguments.junit, "write the report as JUnit XML")
        ->type_name("FILE");
    verify->add_option("--html", arguments.html, "write the report as one HTML page")
        ->type_name("FILE");

    CLI::App* replay = app.add_subcommand("reproduce", "replay one printed case, verbosely");
    replay->add_option("case", arguments.case_line, "the case line, in quotes")->required();
    replay->add_option("--property", arguments.property, "only this property")->type_name("NAME");
    replay->add_option("--samples", arguments.samples, kSamplesText)
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    add_candidate_options(*replay, arguments);

    CLI::App* join = app.add_subcommand("merge", "merge the JSON reports of shards into one");
    join->add_option("file", arguments.files, "JSON reports")->required();
    join->add_option("--json", arguments.json,
                     "write the merged report here instead of standard output")
        ->type_name("FILE");

    MutantsArguments mutants_arguments;
    const CLI::App* mutants = add_mutants_command(app, mutants_arguments);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : kUsage;
    }
    try {
        if (*list_command) return list(arguments);
        if (*verify) return verify_command(arguments);
        if (*replay) return reproduce(arguments);
        if (*mutants) return grade_mutants(mutants_arguments);
        return merge(arguments);
    } catch (const std::exception& e) {  // UsageError, LoadError, unreadable and unwritable files
        std::cerr << "attncheck: " << e.what() << "\n";
        return kUsage;
    }
}
