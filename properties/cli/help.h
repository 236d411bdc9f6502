// What --help prints: the texts of the options in lines of at most 80 columns, exit statuses, an example.
#pragma once

#include <CLI/CLI.hpp>

namespace attncheck::properties {

/// For the application and for the commands that are added to it later.
void set_help(CLI::App& app);

}  // namespace attncheck::properties
