// A run that was stopped, read back from its report so that another run goes on with it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "properties/report/results.h"

namespace attncheck::properties {

/// Whether a run that goes on takes the property over: it came to its end, with a verdict.
bool is_finished(const PropertyReport& property);

/// Whether a run that goes on begins the property where it was.
bool is_begun(const PropertyReport& property);

struct InterruptedRun {
    std::string version, library_sha256;
    std::uint64_t seed = 1;
    std::string shard;  ///< "1/4"
    double duration_s = 0;
    bool is_over = false;  ///< it came to its end: its report is the verdict
    int exit_status = 0;   ///< of that verdict
    std::vector<std::pair<std::string, std::string>> options;
    std::vector<PropertyReport> finished;
    std::vector<PropertyReport> begun;
};

/// Reads the JSON report of a run that was interrupted or came to its end. Throws std::runtime_error when it is none.
InterruptedRun interrupted_run_from(const std::string& text,
                                    const std::vector<const Schema*>& known);

/// Throws std::runtime_error naming what differs when `now` is not the same run: another version of
/// the suite, library, seed, shard or option.
void check_same_run(const InterruptedRun& before, const RunReport& now);

}  // namespace attncheck::properties
