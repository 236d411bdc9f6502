// The manual page and the completions of shells, from the description of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attncheck::properties {

/// attncheck(1) for man; `version` in its foot.
std::string manual_page(const CLI::App& app, const std::string& version);

/// A script that completes commands, options and the values that an option allows.
std::string completion(const CLI::App& app, const std::string& shell);

/// Adds the commands `manual` and `completion`.
struct ManualCommands {
    CLI::App *manual = nullptr, *completion = nullptr;
    std::string shell;
};
void add_manual_commands(CLI::App& app, ManualCommands& commands);

}  // namespace attncheck::properties
