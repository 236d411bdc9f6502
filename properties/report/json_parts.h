// What the JSON of reports is made of, for those who write it and those who read it back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/judge/verdict.h"
#include "properties/report/ratio_histogram.h"
#include "properties/report/results.h"

namespace attncheck::properties {

using Json = nlohmann::ordered_json;

/// The JSON of a report that anybody may have written. Throws Json::parse_error, or
/// std::runtime_error for what is larger, deeper or has more fields than any report does: reading
/// and writing it would need memory and time without end (a field is searched for among its
/// neighbours).
Json parsed_report(const std::string& text);

/// JSON has no infinity and no NaN: they become null, and null is read as infinity.
Json number_or_null(double value);
double to_number(const Json& value);

/// An option of a run: a number where the option takes one, null where it was not given; and back to its text.
Json option_json(const std::string& name, const std::string& text);
std::string option_text(const std::string& name, const Json& value);

/// {"from": 0.25, "cases": 3}, ...: cases by worst error over bound, see ratio_histogram.h.
Json ratios_json(const RatioHistogram& ratios);
void add_ratios(const Json& property, RatioHistogram& all);

/// Of a property of the documented JSON.
std::vector<Json*> counterexamples_of(Json& property);
struct Failure;
/// All counterexamples, in their order, and how many illegal calls were rejected.
std::vector<Failure> failures_of(Json& report, std::int64_t& rejected);
/// Gives every counterexample its number, and the report its causes (causes.h).
void number_counterexamples(Json& report);

/// {"cases", "edited", "inapplicable", "hardly_compared", "needed", "outside", "mostly_declined", "digest"}
Json drawn_json(const DrawnCases& drawn);
/// Throws Json::exception.
DrawnCases drawn_from(const Json& json);
/// Those of two parts of one property.
DrawnCases sum_of(const DrawnCases& left, const DrawnCases& right);

/// {WORD: [found, expected]}, and added back to what is known.
Json casts_json(const std::vector<CastEvidence>& casts);
Json bounds_json(const std::vector<BoundEvidence>& bounds);
void add_bounds(const Json& property, std::vector<BoundEvidence>& all);
void add_casts(const Json& property, std::vector<CastEvidence>& all);

/// {"reached": 412, "possible": 431, "missing": ["broadcast + many_blocks", ...]}
Json pairs_json(std::int64_t possible, const std::vector<std::string>& missing);

}  // namespace attncheck::properties
