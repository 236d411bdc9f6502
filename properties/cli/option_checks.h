// What every option of the command line refuses.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attncheck::properties {

/// A number of seconds from `low` to `high`. CLI::Range lets NaN pass, which no limit survives.
CLI::Validator seconds_between(double low, double high);

/// A whole number that 64 bits hold; CLI11 wraps what does not fit.
CLI::Validator seed_number();

/// One of these values; a value that resembles one is answered with it.
CLI::Validator one_of(std::vector<std::string> values);

/// What is wrong with the words of a command line whose command or option is unknown and resembles
/// one: "no command 'verfy', did you mean 'verify'?"; empty where nothing resembles.
std::string misspelt_word(CLI::App& app, int argc, char** argv);

/// The command that prints the help of what was asked for: "attncheck verify --help".
std::string help_of(const CLI::App& app);

/// Refuses empty values of every option of every subcommand: an unset variable of a script is not
/// an option that was left out.
void refuse_empty_values(CLI::App& app);

}  // namespace attncheck::properties
