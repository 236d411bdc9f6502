// A run as JUnit XML, and as one HTML page.
#pragma once

#include <string>

#include "properties/report/results.h"

namespace attncheck::properties {

std::string to_junit(const RunReport& report);
std::string to_html(const RunReport& report);

/// Text inside XML and HTML, quotes and line ends included.
std::string xml_escaped(const std::string& text);

}  // namespace attncheck::properties
