// What a report must be before it is merged: anybody may have written it.
#pragma once

#include <cstddef>
#include <string>

#include "properties/report/json_parts.h"

namespace attncheck::properties {

/// Place of a status among all, the worst last: what a merged property is when its shards differ.
/// As many as there are for a word that is none.
std::ptrdiff_t status_rank(const std::string& status);

/// Throws std::runtime_error with the reason.
[[noreturn]] void refuse_merge(const std::string& why);

/// Throws std::runtime_error or Json::exception, unless everything that merging looks at is there
/// and of its type.
void check_report(const Json& report);

}  // namespace attncheck::properties
