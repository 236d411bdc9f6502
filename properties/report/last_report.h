// The report of the last run that found something, for `attncheck reproduce @N`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::properties {

/// $XDG_CACHE_HOME/attncheck/last.json, or ~/.cache/attncheck/last.json; empty without a home.
std::string last_report_path();

/// Keeps the text there. False: it could not be written.
bool keep_last_report(const std::string& json);

/// A counterexample of a JSON report, with what else its replay needs.
struct Replay {
    std::string case_line, property, library, python, precision, profile, sandbox, date;
    std::vector<std::string> variables;  ///< of --env
    std::int64_t samples = 0;  ///< 0: the usual number
    double timeout = 0;        ///< 0: the usual one
    std::int64_t memory = 0;
    std::string note;  ///< why the failure may not come again; empty: it does
};

/// The counterexample with that number, see numbers_of() in causes.h. Throws std::runtime_error
/// naming the file and the numbers that it has.
Replay replay_of(const std::string& path, int number);

}  // namespace attncheck::properties
