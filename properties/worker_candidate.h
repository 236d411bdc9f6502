// A candidate behind a worker process: buffers in shared memory between guard pages, poisoned
// outputs, a time limit, a limit on resident memory, and a new worker after a crash.
#pragma once

#include <memory>
#include <string>

#include "properties/candidate.h"

namespace attncheck::properties {

struct WorkerOptions {
    std::string library;    ///< path of the shared library
    std::string worker;     ///< path of attncheck-worker; empty: found beside the running program
    double timeout_s = 10;  ///< per call
    std::int64_t memory_mib =
        8192;                  ///< resident memory of the worker beyond the buffers it is handed
    bool show_stderr = false;  ///< let the candidate's own messages through
};

/// Loads the library in a worker. Throws LoadError.
std::unique_ptr<Candidate> open_worker_candidate(const WorkerOptions& options);

/// Path of attncheck-worker or of the built-in library, looked for beside the running program and
/// where `cmake --install` puts it; the environment variable named first wins. Throws LoadError
/// when there is none.
std::string find_worker();
std::string find_builtin_library();

}  // namespace attncheck::properties
