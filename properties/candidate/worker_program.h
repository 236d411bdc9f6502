// What happens between fork and exec when a worker, or a process that forks workers, is started.
#pragma once

#include <cstdint>

#include "properties/candidate/fork_server.h"

namespace attncheck::properties {

struct WorkerOptions;

/// Of a file that a candidate may write, in MiB: more than memory has to be, because some reserve
/// large files that they never fill.
std::int64_t largest_file(const WorkerOptions& options);

/// Replaces this process, a fork of the suite, by the worker's program: without the suite's
/// descriptors, in a group of its own, with its limits and environment. An arena of -1: what is
/// started forks workers, and `socket` is where it is asked for them.
[[noreturn]] void become_program(const WorkerOptions& options, const WorkerDescriptors& given);

}  // namespace attncheck::properties
