// The processes that a worker forked, and the memory that all of them use together.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace attncheck::properties {

/// Processes below this one that still run: children, their children, and so on. Of thousands the
/// children alone, whether they run or not. A worker adopts
/// what its children leave behind, so that a daemon is among them.
std::vector<pid_t> descendants_of(pid_t pid);

/// Not one that ended and waits for its parent to ask. One whose first thread ended goes on.
bool is_running(pid_t pid);

/// Children of running processes that ended and that nobody asked for.
std::size_t ended_children_of(std::span<const pid_t> processes);

std::int64_t threads_of(std::span<const pid_t> processes);

/// Memory of processes in MiB, shared memory, files in memory, page tables and sockets included, the
/// arena's `arena_mib` left out. Memory that several of them share counts once; an estimate that counts it
/// several times is enough where that stays below `limit_mib`. `arena` is the descriptor of the
/// arena in this process.
std::int64_t memory_mib_of(std::span<const pid_t> processes, std::int64_t arena_mib, int arena,
                           std::int64_t limit_mib);

/// "NAME=VALUE" in the environment of everything that a run starts, the same in all processes of
/// the run.
const std::string& mark_of_run();

/// A second mark that a process cannot take off: this limit, which concerns real-time processes
/// only, has a value of the run's own.
inline constexpr int kMarkedLimit = RLIMIT_RTTIME;
void mark_by_limit();

/// Whether a process was started for this run.
bool is_marked(pid_t pid);

/// From now on this process adopts what workers leave behind when they end.
void adopt_orphans();

/// Ends adopted processes that have the mark of the run and are not among `kept`. What the caller
/// of the suite started itself stays. Returns how many.
int end_adopted(std::span<const pid_t> kept);

/// Ends every process that has the mark of the run, wherever it is. Returns how many.
int end_marked();

}  // namespace attncheck::properties
