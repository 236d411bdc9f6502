// Names that people type.
#pragma once

#include <string>
#include <vector>

#include "properties/case/spelling.h"

namespace attncheck::properties {

std::vector<std::string> operator_names();
std::vector<std::string> property_names();

class Operator;
struct Spec;
/// The case of a line. Throws UsageError that says what is wrong, and which operator was meant.
Spec case_of(const std::string& text);
/// The operator of that name. Throws UsageError with the one that was meant.
const Operator& operator_named(const std::string& name);

}  // namespace attncheck::properties
