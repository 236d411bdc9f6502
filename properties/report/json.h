// A run as JSON: the documented object, and text between processes of one run.
#pragma once

#include <string>
#include <vector>

#include "properties/report/results.h"

namespace attncheck::properties {

/// Schema 1 of the documented JSON object.
std::string to_json(const RunReport& report);

/// A property's report as text between processes of one run, and back.
std::string property_to_text(const PropertyReport& report);
PropertyReport property_from_text(const std::string& text, const std::vector<const Schema*>& known);

}  // namespace attncheck::properties
