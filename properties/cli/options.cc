#include "properties/cli/options.h"

#include <algorithm>
#include <string>
#include <vector>

#include "properties/case/profile.h"
#include "properties/cli/option_checks.h"

namespace attncheck::properties {
namespace {

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

}  // namespace

void add_python_option(CLI::App& command, Arguments& arguments) {
    command
        .add_option("--python", arguments.python,
                    "interpreter for --candidate python:..., a name or a path [python3]")
        ->type_name("PROGRAM");
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
                    "tile=, order=, stats=, split=, scores=, steps=, delta=, group=, in=, scale=, tanh=, hidden=, forward= such as "
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
                    "JSON report of an earlier run: `verify` runs its smallest cases first; says which failures are new, fixed or the same; the exit "
                    "status counts new ones only")
        ->type_name("FILE");
    command
        .add_option("--badge", arguments.badge,
                    "write the verdict as the JSON that shields.io makes a badge of")
        ->type_name("FILE");
}

}  // namespace attncheck::properties
