// A process that loaded a candidate once and forks workers of it: a module that imports torch takes
// seconds to load, and a run starts hundreds of workers. Only candidates in Python have one
// (python/attncheck/_fork_server.py); it says no where a copy would not be sound.
#pragma once

#include <sys/types.h>

#include <string>

namespace attncheck::properties {

struct WorkerOptions;

struct WorkerDescriptors {
    int socket, arena;
    int messages;  ///< standard error; -1: not shown
};

/// A worker forked by the server of this process, as a child of this process, or -1 where there is
/// none: the caller starts a program instead. The first worker of a run is always a program, so
/// that what goes wrong while a candidate loads is told as it is for any other. Throws Stopped.
pid_t fork_from_server(const WorkerOptions& options, const WorkerDescriptors& given);

/// A worker is ready: the next one may be a copy.
void note_loaded();

/// From now on every worker of this process is a program again: one that was forked died, and a
/// copy must not be to blame.
void distrust_fork_server();

/// Workers that were forked may end so: a program did, in the same calls.
void trust_end(const std::string& how);
bool is_trusted_end(const std::string& how);

/// The process of the server, which is no worker and left by none; -1: none.
pid_t fork_server_pid();

}  // namespace attncheck::properties
