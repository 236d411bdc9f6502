// A candidate behind a worker process: buffers in shared memory between guard pages, poisoned
// outputs, a time limit, a limit on memory, and a new worker after a crash.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/candidate/sandbox.h"

namespace attncheck::properties {

struct WorkerOptions {
    std::string library;    ///< path of the shared library
    std::string behind;     ///< libraries that it stands in front of, comma-separated; mostly none
    std::string worker;     ///< path of attncheck-worker; empty: found beside the running program
    std::vector<std::string> worker_arguments = {};  ///< before those of attncheck-worker
    bool can_fork = false;  ///< the worker's program can be a fork server, see fork_server.h
    std::shared_ptr<const Sandbox> sandbox = nullptr;  ///< null: none
    std::vector<std::string> variables = {};  ///< more of the environment that comes into it
    Profile profile = Profile::ascend910b;  ///< in its environment as ATTNCHECK_PROFILE
    double timeout_s = 10;  ///< per call
    double load_limit_s = 0;  ///< 0: a minute, or timeout_s where that is more
    /// Memory of the worker and of what it forks, beyond the buffers it is handed.
    std::int64_t memory_mib = 8192;
    std::ostream* messages = nullptr;  ///< where its standard error goes; null: nowhere
    std::function<bool()> stopped = [] { return false; };  ///< asked while a call or a load runs
};

/// Loads the library in a worker. Throws LoadError.
std::unique_ptr<Candidate> open_worker_candidate(const WorkerOptions& options);

}  // namespace attncheck::properties
