// Failures of a report as a file of waivers.
#pragma once

#include <string>

namespace attncheck::properties {

/// A line for each counterexample of a JSON report, which waives that failure class of that
/// property: what was there on this day is known, and what comes is new. Behind `before`, the text of the file that was
/// waived by. See search/waiver.h.
std::string waivers_of(const std::string& json, const std::string& before = {});

}  // namespace attncheck::properties
