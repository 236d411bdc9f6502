// What a run found, at a glance: a line for each operator, then what did not hold.
#pragma once

#include <string>

#include "properties/report/results.h"

namespace attncheck::properties {

/// Whether a property is among those of which a table says how many hold. Classes and clauses of a run that was too short
/// to reach them are not: -v and the reports say so.
bool applies(const PropertyReport& property);

/// A line for each operator with anything to tell: laws that hold of those that apply, cases, worst
/// error in units of its bound and the law that saw it. Below it the laws that do not hold, by
/// status; at the end the operators that the library does not have. At most 80 columns wide.
std::string summary_of(const RunReport& report);

/// "not implemented: ..." with the operators that the library does not have; empty where there are none.
std::string not_implemented_by(const RunReport& report);

}  // namespace attncheck::properties
