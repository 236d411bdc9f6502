// A candidate behind a worker process: buffers in shared memory between guard pages, poisoned
// outputs, a time limit, a limit on resident memory, and a new worker after a crash.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

struct WorkerOptions {
    std::string library;    ///< path of the shared library
    std::string behind;     ///< libraries that it stands in front of, comma-separated; mostly none
    std::string worker;     ///< path of attncheck-worker; empty: found beside the running program
    std::vector<std::string> worker_arguments = {};  ///< before those of attncheck-worker
    Profile profile = Profile::ascend910b;  ///< in its environment as ATTNCHECK_PROFILE
    double timeout_s = 10;  ///< per call
    std::int64_t memory_mib =
        8192;                  ///< resident memory of the worker beyond the buffers it is handed
    bool show_stderr = false;  ///< let the candidate's own messages through
    std::function<bool()> stopped = [] { return false; };  ///< asked while a call or a load runs
};

/// Loads the library in a worker. Throws LoadError.
std::unique_ptr<Candidate> open_worker_candidate(const WorkerOptions& options);

/// Path of attncheck-worker, of the built-in library, of the adapter to the vendor's two-phase
/// functions and of our own library of those, looked for beside the running program and
/// where `cmake --install` puts it; the environment variable named first wins. Throws LoadError
/// when there is none.
std::string find_worker();
std::string find_builtin_library();
std::string find_aclnn_adapter();
std::string find_acl_library();

/// The same for the worker as a library (worker_library.h) and for its user in Python.
std::string find_worker_library();
std::string find_python_worker();

/// Path of the library of mutants, looked for in the same way; it is not installed.
std::string find_mutants_library();

}  // namespace attncheck::properties
