// `attncheck mutants`: the suite grades itself.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::properties {

struct MutantsArguments {
    std::vector<std::string> libraries, only, families;
    std::string ids = "all", json, earlier, counts, details, minima, rule, words;
    std::uint64_t seed = 1;
    double shrink = 30, limit = 300;
    int jobs = 0, every = 1, cases = 20;
    bool list = false, no_clean = false, counted = false;
};

/// Adds the subcommand with its options; they are read into `arguments`.
CLI::App* add_mutants_command(CLI::App& app, MutantsArguments& arguments);

/// Runs it. Exit status: 0 every mutant that breaks the contract was killed and the library without
/// a mutant held; 1 otherwise; 130 interrupted, without any file written. Throws std::runtime_error
/// for what cannot be read or written.
int grade_mutants(const MutantsArguments& arguments);

}  // namespace attncheck::properties
