// `attncheck explain` and `attncheck cases`: what the suite knows of its laws and its cases.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

/// Prints why a law holds, for each operator that has it; `ops` empty: all. The exit status. Throws
/// UsageError for a law or an operator that is unknown.
int explain_command(const std::string& law, const std::vector<std::string>& ops);

/// Prints the language of case lines; with an operator its fields, each with its values, its
/// default and an example. The exit status. Throws UsageError for an unknown operator.
int cases_command(const std::string& op);

}  // namespace attncheck::properties
