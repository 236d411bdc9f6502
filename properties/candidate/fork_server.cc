#include "properties/candidate/fork_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "properties/candidate/candidate.h"
#include "properties/candidate/process_family.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/candidate/worker_program.h"

namespace attncheck::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestLoad{60};

/// Of this process. A copy of the suite inherits the record, but not the server.
struct Server {
    pid_t owner = -1;
    pid_t pid = -1;
    int control = -1;
    bool is_trusted = true;
    std::set<std::string> ends;  ///< of workers, that are no fault of a copy
    std::string library;
};

Server& server() {
    static Server one;
    return one;
}

bool g_loaded = false;  ///< by this process or by the one it is a copy of

void end_server() {
    Server& s = server();
    if (s.control >= 0) close(s.control);
    if (s.owner == getpid() && s.pid > 0) {
        kill(s.pid, SIGKILL);
        while (waitpid(s.pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    s.control = -1;
    s.pid = -1;
}

bool start_server(const WorkerOptions& options) {
    Server& s = server();
    end_server();
    s.owner = getpid();
    s.library = options.library;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
    s.pid = fork();
    if (s.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != s.owner) _exit(1);
        become_program(options, {pair[1], -1, -1});
    }
    close(pair[1]);
    s.control = pair[0];
    return s.pid > 0;
}

/// The request is one byte with the descriptors.
bool send_request(int control, const WorkerDescriptors& given) {
    const int fds[] = {given.socket, given.arena, given.messages};
    const std::size_t bytes = (given.messages >= 0 ? 3 : 2) * sizeof(int);
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof fds)] = {};
    char word = 'w';
    iovec text{&word, 1};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), fds, bytes);
    ssize_t sent = 0;
    do
        sent = sendmsg(control, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == 1;
}

/// The pid of the worker; 0 or less: none. The first answer comes when the module is loaded.
pid_t read_answer(const WorkerOptions& options, int control) {
    const auto deadline = Clock::now() + kLongestLoad;
    std::int64_t pid = 0;
    std::size_t got = 0;
    while (got < sizeof pid) {
        pollfd waiting{control, POLLIN, 0};
        if (poll(&waiting, 1, 20) > 0) {
            const ssize_t n = read(control, reinterpret_cast<char*>(&pid) + got, sizeof pid - got);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return -1;
            got += static_cast<std::size_t>(n);
        } else if (options.stopped()) {
            throw Stopped();
        } else if (Clock::now() >= deadline) {
            return -1;
        }
    }
    return static_cast<pid_t>(pid);
}

/// The server runs the candidate's code, and what it names will be ended: nothing but a child of
/// this process that was started for the run.
bool is_new_child(pid_t pid) {
    siginfo_t ended{};
    return pid > 0 && pid != server().pid &&
           waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           is_marked(pid);
}

}  // namespace

pid_t fork_from_server(const WorkerOptions& options, const WorkerDescriptors& given) {
    Server& s = server();
    if (!options.can_fork || !g_loaded || !s.is_trusted) return -1;
    const bool is_there =
        s.owner == getpid() && s.control >= 0 && s.library == options.library;
    if (is_there || start_server(options)) {
        try {
            if (send_request(s.control, given))
                if (const pid_t pid = read_answer(options, s.control); is_new_child(pid))
                    return pid;
        } catch (...) {
            end_server();
            throw;
        }
    }
    distrust_fork_server();
    return -1;
}

void note_loaded() { g_loaded = true; }

void distrust_fork_server() {
    end_server();
    server().is_trusted = false;
}

void trust_end(const std::string& how) { server().ends.insert(how); }
bool is_trusted_end(const std::string& how) { return server().ends.contains(how); }

pid_t fork_server_pid() { return server().owner == getpid() ? server().pid : -1; }

}  // namespace attncheck::properties
