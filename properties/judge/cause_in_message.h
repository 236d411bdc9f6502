// The likely cause of an error in the first line of a message: "out: mask not applied, which explains 99 % of the error".
#pragma once

#include <string>

namespace attncheck::properties {

/// Empty: there is none.
std::string cause_in(const std::string& message);

/// The message with this cause, in place of the one that it has.
std::string with_cause(const std::string& message, const std::string& cause);

/// The message without its cause.
std::string without_cause(const std::string& message);

}  // namespace attncheck::properties
