// Required classes of an operator against what a run generated, for whole runs and for merged shards alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/report/results.h"

namespace attncheck::properties {

/// What the properties of an operator generated: percentages of their unedited cases by label.
/// Every property counts alike: where each has equal time instead of equal cases, the one with the
/// smallest cases would have most of them. Those with a handful of cases do not count.
struct GeneratedClasses {
    std::map<std::string, double> percent;
    std::int64_t cases = 0;
};
GeneratedClasses generated_classes(const std::string& op, const std::vector<PropertyReport>& properties);

/// Percentages of so many generated cases with a label against the quotas; empty when all are reached, or when so few
/// cases fall short by chance.
std::vector<std::string> missing_classes(const ClassQuotas& quotas, const std::map<std::string, double>& percent,
                                         double cases);

/// The entry "required_classes" of an operator; too few cases are not judged.
/// `missing_parts` of a sharded run may have reached any class.
PropertyReport verdict_on_classes(const std::string& op, const ClassQuotas& quotas,
                                  const std::vector<PropertyReport>& properties, int missing_parts);

}  // namespace attncheck::properties
