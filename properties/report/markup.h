// A report as JUnit XML, and as one HTML page. Both are made of the documented JSON, so that merged
// shards have them like whole runs.
#pragma once

#include <map>
#include <string>

#include "properties/report/results.h"

namespace attncheck::properties {

/// JUnit as Jenkins and GitLab read it: a suite for each operator, a case for each property and for
/// each further counterexample, at most one failure in a case. Waived properties, and failures that
/// a baseline has too, are skipped with the reason. Throws std::runtime_error for what is no report.
std::string to_junit(const std::string& json);
std::string to_junit(const RunReport& report);

/// `programs`: stand-alone programs that build the cases, by number of the counterexample.
std::string to_html(const std::string& json, const std::map<int, std::string>& programs);
std::string to_html(const RunReport& report);

/// Text inside XML and HTML, quotes and line ends included.
std::string xml_escaped(const std::string& text);

}  // namespace attncheck::properties
