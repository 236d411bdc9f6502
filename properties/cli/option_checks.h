// What every option of the command line refuses.
#pragma once

#include <CLI/CLI.hpp>

namespace attncheck::properties {

/// A number of seconds from `low` to `high`. CLI::Range lets NaN pass, which no limit survives.
CLI::Validator seconds_between(double low, double high);

/// A whole number that 64 bits hold; CLI11 wraps what does not fit.
CLI::Validator seed_number();

/// Refuses empty values of every option of every subcommand: an unset variable of a script is not
/// an option that was left out.
void refuse_empty_values(CLI::App& app);

}  // namespace attncheck::properties
