// The files that verify and merge write at their end.
#pragma once

#include <string>

namespace attncheck::properties {

struct Arguments;

/// Throws UsageError or std::runtime_error when a report cannot be written, two have one name, or
/// --baseline is no report: a run of an hour must not learn it at its end.
void check_report_paths(const Arguments& arguments);

/// Compares the report with --baseline, which is printed, and writes --json, --junit, --html,
/// --badge and --write-waivers. The exit status: `status`, or that of the comparison; kUsage when all held and a
/// file could not be written, which is said.
int finish_report(const Arguments& arguments, const std::string& json, int status);

}  // namespace attncheck::properties
