// Compares a report with an earlier one: which failures are new, fixed, or the same.
#pragma once

#include <string>
#include <vector>

#include "properties/report/json_parts.h"

namespace attncheck::properties {

struct ComparedReport {
    std::string json;     ///< the report, with the comparison under "baseline"
    int exit_status = 0;  ///< failures that the baseline has too do not count
    std::string text;     ///< for people: the lists
};

/// The smallest cases of a baseline, with which a run that is to be compared begins.
struct CaseOfBaseline {
    std::string op, property, line;
};
std::vector<CaseOfBaseline> cases_of_baseline(const std::string& baseline);

/// Failures are the same when the case of the baseline still fails and stays the smallest one; or when wrong output and
/// smallest case are, or wrong output and diagnosis. Where a law did not run the cases of the baseline (on another shard, by an
/// earlier version), the same law and failure class are enough. A failure is fixed when its property was judged and has it no
/// longer. `json` is a report of attncheck, `baseline` one that anybody may have written:
/// throws std::runtime_error when it is none.
ComparedReport compared_with(const std::string& json, const std::string& baseline);

/// Whether a compared report says that the baseline has this failure.
bool is_in_baseline(const Json& report, const std::string& op, const std::string& property,
                    const std::string& failure);

}  // namespace attncheck::properties
