// Causes of failures in text for people.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "properties/report/causes.h"

namespace attncheck::properties {

/// The causes of a run's failures, the most telling first: what is wrong, what it looks like, the
/// smallest case, what of it matters, which other laws fail, and how to replay it. `verbose`: with
/// every counterexample of a cause. Prints nothing when nothing failed.
std::vector<Cause> print_causes(std::ostream& out, const RunReport& report, bool verbose);

/// The same for failures that come from elsewhere: "@N" is one of the JSON report `path`. Without a path each has the
/// command that replays it.
std::vector<Cause> print_causes(std::ostream& out, const std::vector<Failure>& failures,
                                bool rejects_nothing, bool verbose, const std::string& path = {});

/// ": 2 causes in 12 laws"
std::string verdict_text(const std::vector<Cause>& causes, const RunReport& report);

/// "where: worst error / bound by tile of 32 query rows\\n    sequence 0 ..." of a message; empty
/// where it has no picture.
std::string picture_of(const std::string& message);

/// What a message says the defect is: "mask shifted by one key (...), which explains 100 % of the
/// error".
std::string diagnosis_of(const std::string& message);

}  // namespace attncheck::properties
