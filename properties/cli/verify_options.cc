#include <fmt/format.h>

#include "properties/cli/option_checks.h"
#include "properties/cli/options.h"
#include "properties/judge/rules.h"
#include "properties/search/large.h"

namespace attncheck::properties {

CLI::App* add_verify_command(CLI::App& app, Arguments& arguments) {
    CLI::App* const verify =
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
            "cases per property, whatever time they take; 0 only replays --corpus and --baseline")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
    verify
        ->add_option("--time", arguments.seconds,
                     fmt::format("time for the run, without loading the library, in seconds [{} unless --cases or --thorough is given]",
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
                     "end the run after the first counterexample that a fresh process shows again");
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
                     "finished properties are taken over, its seed is used, --time counts for both; one that came to its end is told again; "
                     "the file of --json that is not there yet begins the run")
        ->type_name("FILE");
    verify->add_option("--json", arguments.json, "write the report as JSON")->type_name("FILE");
    add_report_options(*verify, arguments);

    for (const char* other : {"--seed", "--shard", "--resume"})
        secret->excludes(verify->get_option(other));
    for (const char* other : {"--seed", "--shard", "--resume", "--cases", "--property", "--time", "--thorough",
                              "--large", "--rule", "--corpus", "--junit", "--html", "--waive"})
        judged->excludes(verify->get_option(other));
    return verify;
}

}  // namespace attncheck::properties
