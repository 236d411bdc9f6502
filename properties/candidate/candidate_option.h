// What --candidate says.
#pragma once

#include <string>

#include "properties/candidate/worker_candidate.h"

namespace attncheck::properties {

/// Fills in the libraries to load. `text` is empty (the built-in implementation), the path of a
/// candidate library, or "aclnn:" and a comma-separated list of libraries with the vendor's
/// two-phase functions. An empty list means the vendor's own when the build knows where they are,
/// and the project's libattncheck_acl.so otherwise. A name without a slash that is no file here is left to
/// the search path of the dynamic loader. Throws LoadError naming what was looked for.
void choose_library(const std::string& text, WorkerOptions& options);

}  // namespace attncheck::properties
