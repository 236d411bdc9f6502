// The command line: attncheck list | verify | reproduce | judge | merge | explain | cases | mutants.
// Exit status: see properties/report/exit_status.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "properties/case/printable.h"
#include "properties/cli/command.h"
#include "properties/cli/emit_command.h"
#include "properties/cli/heap.h"
#include "properties/cli/help.h"
#include "properties/cli/judge_mode.h"
#include "properties/cli/mutants_command.h"
#include "properties/cli/option_checks.h"
#include "properties/cli/options.h"
#include "properties/cli/standard_streams.h"
#include "properties/cli/entry_table.h"
#include "properties/cli/explain_command.h"
#include "properties/cli/manual.h"
#include "properties/cli/names.h"
#include "properties/cli/report_files.h"
#include "properties/report/files.h"
#include "properties/report/merge.h"
#include "properties/report/terminal.h"

namespace {

using namespace attncheck::properties;

int list(const Arguments& arguments) {
    for (const std::string& name : arguments.ops) (void)operator_named(name);
    if (arguments.as_json) {
        say("{}\n", catalogue_json(arguments.ops));
        return 0;
    }
    prepare_terminal(std::cout, STDOUT_FILENO);
    std::unique_ptr<Candidate> candidate;
    if (!arguments.candidate.empty()) candidate = open_candidate(arguments, false);
    if (candidate)
        say(
            "candidate: {}\nprecision: {}\n\n", candidate->info().name,
            candidate->info().precision.empty() ? "not declared" : candidate->info().precision);
    if (candidate)
        for (const std::string& note : unknown_exports(candidate->info(), arguments)) say("note: {}\n", note);
    for (const auto& op : operators()) {
        if (!arguments.ops.empty() && std::ranges::find(arguments.ops, op->name()) == arguments.ops.end()) continue;
        say("{}{}\n", op->name(),
                   !candidate                              ? ""
                   : op->implemented_by(candidate->info()) ? "  (implemented)"
                                                           : "  (not implemented)");
        for (const auto& property : op->properties())
            say("{}", fitted(std::cout, fmt::format("  {:<20} {}\n", property.name, property.summary), 23));
    }
    return 0;
}

int merge(const Arguments& arguments) {
    check_report_paths(arguments);
    std::vector<std::pair<std::string, std::string>> texts;
    for (const auto& path : arguments.files) {
        texts.emplace_back(path, read_report(path));
    }
    const MergedReport merged = merge_json(texts, arguments.json);
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

int run(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{
        "attncheck finds the smallest case on which an attention kernel is wrong, or says how "
        "close to the rounding limit it is."};
    set_help(app);
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

    const CLI::App* verify = add_verify_command(app, arguments);

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
    join->add_flag("--partial", arguments.partial, "accept reports although shards are missing; laws that none of them has leave it inconclusive");
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

    set_examples(app);
    refuse_empty_values(app);

    try {
        app.parse(argc, argv);
        for (const char* option : {"--sandbox", "--timeout", "--memory"})
            if (replay->count(option) > 0) arguments.given.insert(option);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
        const std::string meant = misspelt_word(app, argc, argv);
        std::cerr << "attncheck: "
                  << printable(meant.empty() ? std::string(e.what()) + "; see: " + help_of(app) : meant) << "\n";
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
