// What a library says about itself when it was loaded, read from its worker.
#pragma once

#include <functional>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

struct WorkerOptions;
class WorkerProcess;

/// Reads the first message of a worker. Throws LoadError when there is none within `limit_s`, when
/// the library cannot be loaded, or with what `reason_to_stop` says, which is asked now and then: empty
/// means that all is well. Throws Stopped.
CandidateInfo read_hello(WorkerProcess& process, const WorkerOptions& options, double limit_s,
                         const std::function<std::string()>& reason_to_stop);

}  // namespace attncheck::properties
