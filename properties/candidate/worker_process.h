// The process of one worker, from its start to its end, with everything that it forks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "properties/candidate/protocol.h"

namespace attncheck::properties {

struct WorkerOptions;

class WorkerProcess {
public:
    /// Starts attncheck-worker. Throws LoadError when the system has no process or socket left.
    WorkerProcess(const WorkerOptions& options, int arena);
    ~WorkerProcess();
    WorkerProcess(const WorkerProcess&) = delete;
    WorkerProcess& operator=(const WorkerProcess&) = delete;

    /// Whether the worker said something that nobody asked for.
    bool has_unread() const;

    /// False when the worker closed the socket or does not read from it. Throws std::runtime_error when the system fails.
    bool send(const Request& request) const;

    enum class News {
        bytes,    ///< receive() has some
        silence,  ///< for so long
        ended     ///< the process; its children may still hold the socket
    };
    News wait(int milliseconds);  ///< throws std::runtime_error when the system fails

    /// How many bytes came; 0: the worker closed the socket. Throws std::runtime_error.
    std::size_t receive(void* to, std::size_t bytes) const;

    /// Whether it is a copy of a process that had loaded the library, not a program of its own.
    bool is_copy() const { return is_copy_; }

    /// The process and those it forked, directly or not.
    std::vector<pid_t> family() const;
    std::vector<pid_t> itself() const { return {pid_}; }
    std::int64_t threads() const;  ///< of the process itself

    /// Ends the process, at once or after it had a moment to end by itself, and all that it
    /// forked. The status is that of waitpid.
    int end(bool at_once);

    /// Ends the process alone and returns how many of `others` still go on after so long; those
    /// are ended too.
    int count_left(const std::vector<pid_t>& others, int milliseconds);

private:
    void show_messages();
    void end_family();

    pid_t pid_ = -1;
    bool is_copy_ = false;  ///< of a fork server
    int socket_ = -1;
    int ended_ = -1;     ///< readable when the process ended; -1 where the system has no such thing
    int messages_ = -1;  ///< standard error of the candidate; -1: goes nowhere
    std::ostream* to_ = nullptr;
    std::size_t shown_ = 0;  ///< bytes of it
};

/// Exit status of a process that could not become a worker.
inline constexpr int kNoWorker = 127;

/// The same of one that could not enter its sandbox.
inline constexpr int kNoSandbox = 126;

/// "SIGSEGV".
std::string signal_name(int number);

/// How a worker ended, by the status of waitpid.
std::string describe_end(int status, const WorkerOptions& options);

/// Ends what workers of this process left to it.
void end_left_processes();

}  // namespace attncheck::properties
