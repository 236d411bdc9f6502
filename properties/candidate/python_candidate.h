// A candidate in Python: an interpreter is started as the worker.
#pragma once

#include <string>

#include "properties/candidate/worker_candidate.h"

namespace attncheck::properties {

inline constexpr std::string_view kPythonPrefix = "python:";

/// Fills in `options` for "FILE.py", "FILE.py:NAME", "package.module" or "package.module:NAME";
/// NAME is one function of it. The interpreter is `interpreter`, else the environment variable
/// ATTNCHECK_PYTHON, else python3 on PATH. `entry_table` says where the arguments of the entry
/// points lie (cli/entry_table.h). Throws LoadError naming what was looked for.
void choose_python(const std::string& text, const std::string& interpreter,
                   const std::string& entry_table, WorkerOptions& options);

}  // namespace attncheck::properties
