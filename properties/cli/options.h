// Options that several commands have, and those of `verify`.
#pragma once

#include <CLI/CLI.hpp>

#include "properties/cli/command.h"

namespace attncheck::properties {

inline constexpr const char* kSamplesText =
    "random rows, and random keys, that `sampled` checks in addition to the boundaries";

void add_python_option(CLI::App& command, Arguments& arguments);
void add_profile_option(CLI::App& command, Arguments& arguments);
void add_sandbox_option(CLI::App& command, Arguments& arguments);
void add_candidate_options(CLI::App& command, Arguments& arguments);
void add_report_options(CLI::App& command, Arguments& arguments);

CLI::App* add_verify_command(CLI::App& app, Arguments& arguments);

}  // namespace attncheck::properties
