// The command line: attncheck list | verify | reproduce | judge | merge | explain | cases | mutants.
// Exit status: see properties/report/exit_status.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "properties/case/printable.h"
#include "properties/cli/command.h"
#include "properties/cli/emit_command.h"
#include "properties/search/large.h"
#include "properties/cli/heap.h"
#include "properties/cli/judge_mode.h"
#include "properties/cli/mutants_command.h"
#include "properties/cli/option_checks.h"
#include "properties/cli/standard_streams.h"
#include "properties/cli/entry_table.h"
#include "properties/cli/explain_command.h"
#include "properties/cli/manual.h"
#include "properties/cli/names.h"
#include "properties/cli/report_files.h"
#include "properties/report/files.h"
#include "properties/report/merge.h"
#include "properties/judge/rules.h"

namespace {

using namespace attncheck::properties;

constexpr const char* kSamplesText =
    "random rows, and random keys, that `sampled` looks at beside the boundaries";
int list(const Arguments& arguments) {
    if (arguments.as_json) {
        say("{}\n", catalogue_json());
        return 0;
    }
    std::unique_ptr<Candidate> candidate;
    if (!arguments.candidate.empty()) candidate = open_candidate(arguments, false);
    if (candidate)
        say(
            "candidate: {}\nprecision: {}\n\n", candidate->info().name,
            candidate->info().precision.empty() ? "not declared" : candidate->info().precision);
    if (candidate)
        for (const std::string& note : unknown_exports(candidate->info(), arguments)) say("note: {}\n", note);
    for (const std::string& name : arguments.ops) (void)operator_named(name);
    for (const auto& op : operators()) {
        if (!arguments.ops.empty() && std::ranges::find(arguments.ops, op->name()) == arguments.ops.end()) continue;
        say("{}{}\n", op->name(),
                   !candidate                              ? ""
                   : op->implemented_by(candidate->info()) ? "  (implemented)"
                                                           : "  (not implemented)");
        for (const auto& property : op->properties())
            say("  {:<20} {}\n", property.name, property.summary);
    }
    return 0;
}

int merge(const Arguments& arguments) {
    check_report_paths(arguments);
    std::vector<std::pair<std::string, std::string>> texts;
    for (const auto& path : arguments.files) {
        texts.emplace_back(path, read_report(path));
    }
    const MergedReport merged = merge_json(texts);
    if (!merged.missing_shards.empty() && !arguments.partial)
        throw UsageError(fmt::format("no report of shard {} of {}; --partial merges what is there",
                                     fmt::join(merged.missing_shards, ", "), merged.shards));
    // The report goes to standard output where no file takes it.
    const bool is_printed = arguments.json.empty() && arguments.junit.empty() && arguments.html.empty();
    (is_printed ? std::cerr : std::cout) << merged.table;
    if (is_printed && arguments.baseline.empty()) {
        std::cout << merged.json;
        return merged.exit_status;
    }
    return finish_report(arguments, merged.json, merged.exit_status);
}

void add_python_option(CLI::App& command, Arguments& arguments) {
    command
        .add_option("--python", arguments.python,
                    "interpreter for --candidate python:..., a name or a path [python3]")
        ->type_name("PROGRAM");
}

/// An option whose value is one of the names of an enumeration, in its order.
template <class Choice, class Names>
void add_choice(CLI::App& command, const char* option, Choice& choice, const Names& names,
                const char* description) {
    command
        .add_option_function<std::string>(
            option,
            [&](const std::string& name) {
                choice = static_cast<Choice>(std::ranges::find(names, name) - names.begin());
            },
            description)
        ->check(one_of(std::vector<std::string>(names.begin(), names.end())))
        ->default_str(std::string(name_of(choice)));
}

void add_profile_option(CLI::App& command, Arguments& arguments) {
    add_choice(command, "--profile", arguments.profile, kProfileNames,
               "platform profile: decides what is legal; given to the library as ATTNCHECK_PROFILE");
}

void add_sandbox_option(CLI::App& command, Arguments& arguments) {
    add_choice(command, "--sandbox", arguments.sandbox, kSandboxNames,
               "walls around the library: on as far as the system has them, strict or not at all, off");
    command
        .add_option("--env", arguments.variables,
                    "variable of the environment that comes into the sandbox too (may be given "
                    "several times)")
        ->type_name("NAME");
}

void add_candidate_options(CLI::App& command, Arguments& arguments) {
    command
        .add_option("--candidate", arguments.candidate,
                    "shared library to check, or aclnn:LIB,... for libraries with the vendor's "
                    "two-phase functions (aclnn: alone: the default ones), or python:FILE[:NAME] or "
                    "python:MODULE[:NAME] for functions in Python; the built-in implementation if "
                    "left out")
        ->type_name("LIB");
    add_python_option(command, arguments);
    add_sandbox_option(command, arguments);
    command
        .add_option("--precision", arguments.precision,
                    "rounding class: default, fp32, or a list of acc=, p=, ds=, sum=, ftz=, exp=, "
                    "tile=, order=, stats=, split=, scores=, delta=, group=, in=, hidden=, forward= such as "
                    "'acc=fp32 p=half ds=half sum=rounded order=fixed'")
        ->type_name("PROFILE");
    add_profile_option(command, arguments);
    command
        .add_option("--features", arguments.features,
                    "what the library takes, as case lines have it: 'OPERATOR: field=values ...', lines separated by "
                    "';', values as lists, a..b, a..b/step or the name of an equal field; learned if left out")
        ->type_name("TEXT");
    command.add_option("--timeout", arguments.timeout, "time limit of one call, in seconds")
        ->check(seconds_between(0.001, 1e6))
        ->capture_default_str();
    command.add_option("--memory", arguments.memory, "limit on memory of the library and of processes that it starts, in MiB")
        ->type_name("MIB")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
}

void add_report_options(CLI::App& command, Arguments& arguments) {
    command.add_option("--junit", arguments.junit, "write the report as JUnit XML")->type_name("FILE");
    command.add_option("--html", arguments.html, "write the report as one HTML page")->type_name("FILE");
    command
        .add_option("--baseline", arguments.baseline,
                    "JSON report of an earlier run: says which failures are new, fixed or the same; the exit "
                    "status counts new ones only")
        ->type_name("FILE");
    command
        .add_option("--badge", arguments.badge,
                    "write the verdict as the JSON that shields.io makes a badge of")
        ->type_name("FILE");
}

int run(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{
        "attncheck finds the smallest case on which an attention kernel is wrong, or says how "
        "close to the rounding limit it is."};
    app.footer(
        "Exit status: " + exit_meanings() + ".\n\n"
        "Example: attncheck verify --candidate ./libmykernel.so --op nsa_compress_grad");
    app.set_version_flag("--version", "attncheck " ATTNCHECK_VERSION, "print the version");
    app.require_subcommand(1);

    CLI::App* list_command =
        app.add_subcommand("list", "operators, properties, and what a library implements");
    list_command
        ->add_option("--candidate", arguments.candidate,
                     "shared library to ask, or aclnn:LIB,..., or python:...")
        ->type_name("LIB");
    list_command->add_flag("--json", arguments.as_json,
                           "the arguments of entry points and the properties, as JSON");
    list_command->add_option("--op", arguments.ops, "only this operator (may be given several times)")
        ->type_name("NAME");
    add_python_option(*list_command, arguments);
    add_sandbox_option(*list_command, arguments);

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
            "cases per property, whatever time they take; 0 only replays --corpus")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
    verify
        ->add_option("--time", arguments.seconds,
                     fmt::format("time for the whole run, in seconds [{} unless --cases or --thorough is given]",
                                 kUsualSeconds))
        ->check(seconds_between(0.001, 1e9));
    CLI::Option* const thorough = verify->add_flag(
        "--thorough", arguments.thorough,
        fmt::format("{} cases per property, whatever time they take", kThoroughCases));
    for (const char* other : {"--cases", "--time"}) thorough->excludes(verify->get_option(other));
    verify
        ->add_option("--seed", arguments.seed,
                     "the same seed gives the same cases; a new one each run if left out, 1 for "
                     "shards")
        ->check(seed_number());
    verify
        ->add_option("--shard", arguments.shard,
                     "run the I-th of N parts; merge their JSON reports")
        ->type_name("I/N");
    verify
        ->add_option("--jobs", arguments.jobs,
                     "properties checked at once, each in a process of its own; one for each core, "
                     "at most 4, if left out")
        ->check(CLI::Range(1, 256));
    verify
        ->add_option("--require", arguments.required,
                     "an operator that the library must implement (may be given several times)")
        ->type_name("NAME");
    verify->add_flag("--no-validation", arguments.no_validation,
                     "the library checks no arguments: run legal cases only");
    verify->add_flag("-v,--verbose", arguments.verbose,
                     "at the end one line for each property, and the classes of cases that were met");
    verify->add_flag("--stop-at-first", arguments.stop_at_first,
                     "end the run after the first counterexample");
    verify->add_option("--shrink", arguments.shrink, "time limit for shrinking one counterexample")
        ->type_name("SECONDS")
        ->check(seconds_between(0, 1e9))
        ->capture_default_str();
    verify
        ->add_option("--waive", arguments.waive,
                     "known deviations: counted and shown, not reported as failures")
        ->type_name("FILE");
    verify
        ->add_option("--write-waivers", arguments.write_waivers,
                     "write what failed as known deviations, for --waive of later runs")
        ->type_name("FILE");
    verify
        ->add_option("--rule", arguments.rule,
                     "judge agreement, and nothing else, by the tolerance of another project in "
                     "place of the error bounds")
        ->check(one_of(rule_names()));
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
    for (const char* other : {"--cases", "--property", "--time", "--thorough", "--shard", "--rule", "--corpus"})
        large->excludes(verify->get_option(other));
    verify->add_option("--samples", arguments.samples, kSamplesText)
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    verify
        ->add_option("--require-precision", arguments.required_precision,
                     "rounding class that the library may not exceed: status 2 if it declares a "
                     "wider one")
        ->type_name("PROFILE");
    CLI::Option* const secret =
        verify->add_flag("--secret-seed", arguments.secret_seed,
                         "a random seed that is told at the end of the run only");
    CLI::Option* const judged = verify->add_flag(
        "--judge", arguments.judge,
        "one JSON object with verdict, reward and feedback, for a library that nobody trusts");
    verify
        ->add_option("--budget", arguments.budget, "time of --judge, in seconds")
        ->check(seconds_between(0.1, 3600))
        ->capture_default_str()
        ->needs(judged);
    verify
        ->add_option("--resume", arguments.resume,
                     "JSON report of a stopped run of the same options, library and version: its "
                     "finished properties are taken over, its seed is used")
        ->type_name("FILE");
    verify->add_option("--json", arguments.json, "write the report as JSON")->type_name("FILE");
    add_report_options(*verify, arguments);

    for (const char* other : {"--seed", "--shard", "--resume"})
        secret->excludes(verify->get_option(other));
    for (const char* other : {"--seed", "--shard", "--resume", "--cases", "--property", "--time", "--thorough",
                              "--large", "--rule", "--corpus", "--junit", "--html", "--waive"})
        judged->excludes(verify->get_option(other));

    CLI::App* replay = app.add_subcommand("reproduce", "replay one printed case, verbosely");
    replay
        ->add_option("case", arguments.case_line,
                     "the case line, in quotes; or @N, the N-th counterexample of --report")
        ->required();
    replay
        ->add_option("--report", arguments.report,
                     "JSON report that @N is about [the last run that found something]")
        ->type_name("FILE");
    replay
        ->add_option("--dump", arguments.dump,
                     "write the tensors, and what was expected of outputs, as .npy files into this folder")
        ->type_name("DIR");
    replay->add_option("--property", arguments.property, "only this property")->type_name("NAME");
    replay
        ->add_option("--emit", arguments.emit,
                     "print the case as a program of its own with a placeholder for the kernel")
        ->check(one_of(emitted_languages()));
    replay->add_option("--samples", arguments.samples, kSamplesText)
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    add_candidate_options(*replay, arguments);

    CLI::App* judge = app.add_subcommand(
        "judge", "judge outputs that were computed elsewhere by the bounds and tiers of the suite");
    judge
        ->add_option("file", arguments.tensor_file,
                     "arguments and outputs under their names, .npz or .safetensors; 'op' names the "
                     "operator")
        ->required();
    judge->add_option("--op", arguments.ops, "the operator, where the file does not name it")
        ->expected(1)
        ->type_name("NAME");
    judge->add_option("--precision", arguments.precision, "rounding class, as verify takes it")
        ->type_name("PROFILE");
    add_profile_option(*judge, arguments);
    judge->add_option("--samples", arguments.samples, kSamplesText)
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();

    CLI::App* join = app.add_subcommand("merge", "merge the JSON reports of shards into one");
    join->add_option("file", arguments.files, "JSON reports")->required();
    join->add_flag("--partial", arguments.partial, "accept reports although shards are missing");
    join->add_option("--json", arguments.json,
                     "write the merged report here instead of standard output")
        ->type_name("FILE");
    add_report_options(*join, arguments);

    CLI::App* explain = app.add_subcommand("explain", "why a law holds, its bound, and which defects it finds");
    explain->add_option("law", arguments.property, "a property, as list prints it")->required();
    explain->add_option("--op", arguments.ops, "only of this operator (may be given several times)")
        ->type_name("NAME");

    CLI::App* cases = app.add_subcommand("cases", "the language of case lines, with an example of every field");
    cases->add_option("operator", arguments.case_line, "the fields of this operator");

    MutantsArguments mutants_arguments;
    const CLI::App* mutants = add_mutants_command(app, mutants_arguments);

    ManualCommands manuals;
    add_manual_commands(app, manuals);

    refuse_empty_values(app);

    try {
        app.parse(argc, argv);
        arguments.has_sandbox = replay->count("--sandbox") > 0;
    } catch (const CLI::ParseError& e) {
        const std::string meant = e.get_exit_code() == 0 ? "" : misspelt_word(app, argc, argv);
        if (meant.empty()) return app.exit(e) == 0 ? 0 : kUsage;
        std::cerr << "attncheck: " << printable(meant) << "\n";
        return kUsage;
    }
    try {
        if (*list_command) return list(arguments);
        if (*verify) return arguments.judge ? judge_mode(arguments) : verify_command(arguments);
        if (*replay)
            return arguments.emit.empty() ? reproduce_command(arguments)
                                          : emit_command(with_counterexample(arguments));
        if (*judge) return judge_command(arguments);
        if (*explain) return explain_command(arguments.property, arguments.ops);
        if (*cases) return cases_command(arguments.case_line);
        if (*manuals.manual) {
            std::cout << manual_page(app, ATTNCHECK_VERSION);
            return kHeld;
        }
        if (*manuals.completion) {
            std::cout << completion(app, manuals.shell);
            return kHeld;
        }
        if (*mutants) return grade_mutants(mutants_arguments);
        return merge(arguments);
    } catch (const std::exception& e) {  // UsageError, LoadError, unreadable and unwritable files
        std::cerr << "attncheck: " << printable(e.what()) << "\n";
        return kUsage;
    }
}

}  // namespace

int main(int argc, char** argv) {
    prepare_standard_streams();
    keep_freed_memory();
    return flush_standard_output(run(argc, argv));
}
