// Required classes of an operator: what a run generated against the quotas, and the pairs it reached.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/report/results.h"

namespace attncheck::properties {

/// What the properties of an operator generated: percentages of their unedited cases by label.
/// Every property counts alike: where each has equal time instead of equal cases, the one with the
/// smallest cases would have most of them. Those with a handful of cases do not count.
struct GeneratedClasses {
    std::map<std::string, double> percent;
    std::int64_t cases = 0;
};
GeneratedClasses generated_classes(const std::string& op,
                                   const std::vector<PropertyReport>& properties);

/// Percentages of generated cases with a label against the operator's quotas; empty when all are
/// reached.
std::vector<std::string> missing_classes(const Operator& op,
                                         const std::map<std::string, double>& percent);

/// The same for a candidate that takes only some cases: of the classes that these have, each must be met.
std::vector<std::string> missing_classes(const TakenCases& taken,
                                         const std::map<std::string, double>& percent);

/// Adds the entry "required_classes" of an operator, judged over what was generated for it; too few
/// cases are not judged.
void judge_classes(const Operator& op, RunReport& report);

/// Adds the entry "required_clauses" of an operator whose validation ran with planned cases: each
/// clause of the documented constraints must have decided one. The clauses are those of the default
/// profile. Those of a shard are judged when it is merged with the others.
void judge_clauses(const Operator& op, RunReport& report);

/// Adds which pairs of the operator's classes the run reached, unless it had no cases of it.
void count_pairs(const Operator& op, RunReport& report);

}  // namespace attncheck::properties
