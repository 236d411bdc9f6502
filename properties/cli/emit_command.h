// `attncheck reproduce CASE --emit LANGUAGE`: the case as a program of its own.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

struct Arguments;

/// What --emit takes.
std::vector<std::string> emitted_languages();

/// Prints a program that needs nothing of attncheck: it has the arguments of the case, computes
/// the expected values in binary64, calls a placeholder for the kernel, and compares under the
/// bound of --precision, or of the class that --candidate declares. The exit status. Throws
/// UsageError for cases that are too large or have no call, LoadError.
int emit_command(const Arguments& arguments);

}  // namespace attncheck::properties
