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

/// Failures are the same when operator, property and failure class are; the smallest case may
/// differ, since another seed finds another one. A failure is fixed when its property was judged and
/// has it no longer. `json` is a report of attncheck, `baseline` one that anybody may have written:
/// throws std::runtime_error when it is none.
ComparedReport compared_with(const std::string& json, const std::string& baseline);

/// Whether a compared report says that the baseline has this failure.
bool is_in_baseline(const Json& report, const std::string& op, const std::string& property,
                    const std::string& failure);

}  // namespace attncheck::properties
