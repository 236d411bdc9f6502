#include "properties/candidate/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "properties/candidate/candidate.h"
#include "properties/candidate/fork_server.h"
#include "properties/candidate/process_family.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/candidate/worker_program.h"
#include "properties/case/printable.h"

namespace attncheck::properties {
namespace {

/// Workers of this process: what else it adopts was left behind.
std::vector<pid_t>& running_workers() {
    static std::vector<pid_t> pids;
    return pids;
}

/// Of the system, not of the candidate.
[[noreturn]] void fail(const char* what) {
    throw std::runtime_error(
        fmt::format("cannot {} the worker process: {}", what, std::strerror(errno)));
}

/// Waits for it, not for ever: a process that traces it keeps its end from its parent.
bool has_ended(pid_t pid, int milliseconds, int& status) {
    for (int waited_us = 0; waited_us < milliseconds * 1000;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) return true;
        if (ended < 0 && errno != EINTR) return false;  // the system will not say
        const int step_us = waited_us < 2000 ? 50 : 1000;  // one that was killed is gone at once
        usleep(static_cast<useconds_t>(step_us));
        waited_us += step_us;
    }
    return waitpid(pid, &status, WNOHANG) == pid;
}

void close_all(std::initializer_list<int> descriptors) {
    for (const int descriptor : descriptors)
        if (descriptor >= 0) close(descriptor);
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerOptions& options, int arena) {
    adopt_orphans();
    (void)mark_of_run();
    int sockets[2] = {-1, -1}, messages[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 ||
        (options.messages && pipe2(messages, O_CLOEXEC) != 0)) {
        close_all({sockets[0], sockets[1]});
        throw LoadError(fmt::format("cannot start a worker process: no socket or pipe is left: {}",
                                    std::strerror(errno)));
    }
    const WorkerDescriptors given{sockets[1], arena, messages[1]};
    try {
        pid_ = fork_from_server(options, given);
    } catch (...) {
        close_all({sockets[0], sockets[1], messages[0], messages[1]});
        throw;
    }
    if (pid_ > 0 && std::ranges::find(running_workers(), pid_) != running_workers().end()) {
        distrust_fork_server();  // it names a worker that it did not fork
        pid_ = -1;
    }
    is_copy_ = pid_ > 0;
    if (!is_copy_) pid_ = fork();
    if (pid_ == 0) become_program(options, given);
    const int problem = errno;
    close_all({sockets[1], messages[1]});
    if (pid_ < 0) {
        close_all({sockets[0], messages[0]});
        throw LoadError(fmt::format("cannot start a worker process: {}", std::strerror(problem)));
    }
    setpgid(pid_, pid_);  // whoever is first
    socket_ = sockets[0];
    messages_ = messages[0];
    to_ = options.messages;
    if (messages_ >= 0) fcntl(messages_, F_SETFL, O_NONBLOCK);
    ended_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    running_workers().push_back(pid_);
}

WorkerProcess::~WorkerProcess() { end(true); }

bool WorkerProcess::has_unread() const {
    char byte = 0;
    return ::recv(socket_, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool WorkerProcess::send(const Request& request) const {
    ssize_t sent = 0;
    do
        sent = ::send(socket_, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET && errno != EAGAIN) fail("send to");
    return sent == static_cast<ssize_t>(sizeof request);
}

WorkerProcess::News WorkerProcess::wait(int milliseconds) {
    // A descriptor of -1 is left out by poll.
    pollfd waiting[] = {{socket_, POLLIN, 0}, {ended_, POLLIN, 0}, {messages_, POLLIN, 0}};
    const int ready = poll(waiting, std::size(waiting), milliseconds);
    if (ready < 0 && errno != EINTR) fail("wait for");
    if (ready <= 0) return News::silence;
    if (waiting[2].revents != 0) show_messages();
    if (waiting[0].revents != 0) return News::bytes;
    if (waiting[1].revents == 0) return News::silence;
    // What it said before it ended comes first.
    return poll(waiting, 1, 0) > 0 ? News::bytes : News::ended;
}

std::size_t WorkerProcess::receive(void* to, std::size_t bytes) const {
    ssize_t got = 0;
    do
        got = ::recv(socket_, to, bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno != ECONNRESET) fail("read from");  // reset: it left a request unread
    return got < 0 ? 0 : static_cast<std::size_t>(got);
}

std::vector<pid_t> WorkerProcess::family() const {
    std::vector<pid_t> all = descendants_of(pid_);
    all.insert(all.begin(), pid_);
    return all;
}

std::int64_t WorkerProcess::threads() const { return threads_of({&pid_, 1}); }

/// What a candidate says on standard error, fit for a terminal, and not without end.
void WorkerProcess::show_messages() {
    constexpr std::size_t kMost = 64 << 10;
    char text[4096];
    for (int rounds = 0; rounds < 256; ++rounds) {
        const ssize_t got = read(messages_, text, sizeof text);
        if (got <= 0) {
            if (got == 0) close_all({std::exchange(messages_, -1)});
            return;
        }
        if (shown_ > kMost) continue;
        shown_ += static_cast<std::size_t>(got);
        *to_ << printable({text, static_cast<std::size_t>(got)});
        if (shown_ > kMost) *to_ << "\nattncheck: the library says more than is shown\n";
        to_->flush();
    }
}

int WorkerProcess::end(bool at_once) {
    int status = 0;
    if (pid_ <= 0) return status;
#ifdef ATTNCHECK_COVERAGE  // an idle worker ends itself, and writes its counters first
    at_once = false;
#endif
    close_all({std::exchange(socket_, -1)});
    // One that closed its socket without dying is ended (the candidate called close, or _exit in a
    // thread).
    constexpr int kMostMilliseconds = 200;
    bool is_over = false;
    if (!at_once) is_over = has_ended(pid_, kMostMilliseconds, status);
    std::vector<pid_t> forked = descendants_of(pid_);
    if (!is_over) kill(pid_, SIGKILL);
    kill(-pid_, SIGKILL);  // the group lives as long as one of them
    for (const pid_t pid : forked) kill(pid, SIGKILL);
    if (!is_over && !has_ended(pid_, kMostMilliseconds, status)) {
        end_left_processes();  // who traces it is among them
        (void)has_ended(pid_, kMostMilliseconds, status);
    }
    if (messages_ >= 0) show_messages();
    end_family();
    return status;
}

/// After the process itself.
void WorkerProcess::end_family() {
    std::erase(running_workers(), pid_);
    close_all({std::exchange(socket_, -1), std::exchange(ended_, -1),
               std::exchange(messages_, -1)});
    pid_ = -1;
    end_left_processes();
}

int WorkerProcess::count_left(const std::vector<pid_t>& others, int milliseconds) {
    const auto is_gone = [](pid_t pid) { return !is_running(pid); };
    std::vector<pid_t> left = others;
    kill(pid_, SIGKILL);
    int status = 0;
    const bool is_over = has_ended(pid_, milliseconds, status);
    constexpr int kStep = 2;  // milliseconds
    for (int waited = 0; !left.empty() && waited < milliseconds; waited += kStep) {
        std::erase_if(left, is_gone);
        if (!left.empty()) usleep(1000 * kStep);
    }
    std::erase_if(left, is_gone);
    kill(-pid_, SIGKILL);
    for (const pid_t pid : left) kill(pid, SIGKILL);
    if (!is_over) (void)has_ended(pid_, milliseconds, status);
    end_family();
    return static_cast<int>(left.size());
}

std::string signal_name(int number) {
    const char* name = sigabbrev_np(number);
    return name ? std::string("SIG") + name : fmt::format("signal {}", number);
}

std::string describe_end(int status, const WorkerOptions& options) {
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status) == kConnectionLost
                   ? "closed the suite's connection"
                   : fmt::format("ended the process with exit code {}", WEXITSTATUS(status));
    const int number = WTERMSIG(status);
    return fmt::format(
        "crashed: {}{}", signal_name(number),
        number == SIGKILL ? " (killed from outside, perhaps for lack of memory)"
        : number == SIGXFSZ
            ? fmt::format(" (wrote a file of more than {} MiB)", largest_file(options))
            : "");
}

void end_left_processes() {
    constexpr int kMostRounds = 100;  // something may fork faster than it is ended
    std::vector<pid_t> kept = running_workers();
    kept.push_back(fork_server_pid());
    for (int k = 0; k < kMostRounds && end_adopted(kept) > 0; ++k) {
    }
}

}  // namespace attncheck::properties
