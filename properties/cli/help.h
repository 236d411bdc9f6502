// What --help prints: the texts of the options in lines of at most 80 columns, exit statuses, an example.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace attncheck::properties {

/// For the application and for the commands that are added to it later.
void set_help(CLI::App& app);

/// A command line that shows what the command is for: "attncheck merge a.json b.json --json all.json".
std::string help_example(const std::string& command);

/// For the commands of the application: each ends with its own example.
void set_examples(CLI::App& app);

}  // namespace attncheck::properties
