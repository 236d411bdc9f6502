#include "properties/candidate/worker_candidate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "properties/candidate/arena.h"
#include "properties/candidate/protocol.h"
#include "properties/case/printable.h"

namespace attncheck::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kProfileVariable = "ATTNCHECK_PROFILE=";
constexpr double kShareOfRepetitions = 0.25;  ///< of the limit: repetitions begin in this time
constexpr std::size_t kLongestName = 120, kLongestError = 1000;  ///< bytes, of what is printed

std::string signal_name(int number) {
    const char* name = sigabbrev_np(number);
    return name ? std::string("SIG") + name : fmt::format("signal {}", number);
}

/// Memory of a process that is resident, in MiB, without the arena's `buffers_mib`. 0 when it cannot
/// be read.
std::int64_t resident_mib(pid_t pid, std::int64_t buffers_mib) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    std::int64_t own = 0, shared = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("RssAnon:")) own = std::atoll(line.c_str() + 8) / 1024;
        if (line.starts_with("RssShmem:")) shared = std::atoll(line.c_str() + 9) / 1024;
    }
    return own + std::max<std::int64_t>(0, shared - buffers_mib);
}

/// Changes when a file is replaced, written to or removed.
std::string identity_of(const std::string& path) {
    struct stat file{};
    if (stat(path.c_str(), &file) != 0) return "none";
    return fmt::format("{} {} {} {}.{:09}", file.st_dev, file.st_ino, file.st_size,
                       file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

/// How a worker ended, by the status of waitpid.
std::string describe_end(int status) {
    if (WIFSIGNALED(status))
        return fmt::format("crashed: {}{}", signal_name(WTERMSIG(status)),
                           WTERMSIG(status) == SIGKILL
                               ? " (killed from outside, perhaps for lack of memory)"
                               : "");
    if (WEXITSTATUS(status) == kConnectionLost) return "closed the suite's connection";
    return fmt::format("ended the process with exit code {}", WEXITSTATUS(status));
}

/// In a container that runs out of memory the kernel shall take the worker, not the suite.
void prefer_for_out_of_memory() {
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    (void)!write(file, "1000", 4);
    close(file);
}

class WorkerCandidate final : public Candidate {
public:
    explicit WorkerCandidate(const WorkerOptions& options) : options_(options) {
        if (options_.worker.empty()) options_.worker = find_worker();
        limit_s_ = options_.timeout_s;
        start();
    }
    ~WorkerCandidate() override { stop(); }

    const CandidateInfo& info() const override { return info_; }

    CallResult run(const Call& call, const RunOptions& options) override {
        const Call* one[] = {&call};
        return run_placed(one, options, 1).front();
    }

    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override {
        return run_placed(calls, {}, repetitions);
    }

    void restart() override { stop(); }

    void limit_time(std::chrono::duration<double> limit) override {
        limit_s_ =
            limit.count() > 0 ? std::min(limit.count(), options_.timeout_s) : options_.timeout_s;
    }

private:
    std::vector<CallResult> run_placed(std::span<const Call* const> calls,
                                       const RunOptions& options, int repetitions) {
        if (options_.stopped()) throw Stopped();
        if (pid_ < 0) start();
        PlacedCalls placed({calls.begin(), calls.end()}, options, repetitions);
        const double limit_s = limit_s_ * options.patience;
        placed.stop_repeating_after(limit_s * kShareOfRepetitions);
        std::vector<CallResult> results(calls.size());
        Reply reply{};
        // Calls at once may have one core to share, and each of them may take the limit.
        const double all_s =
            calls.size() > 1 ? limit_s * (static_cast<double>(calls.size()) + kShareOfRepetitions)
                             : limit_s;
        if (exchange(placed.request(), all_s, options, reply, results.front())) {
            if (reply.kind == Reply::not_run)
                throw std::runtime_error(
                    "the system has no threads left for calls at once (see `ulimit -u`)");
            for (std::size_t k = 0; k < calls.size(); ++k) {
                results[k].status = reply.status[k];
                results[k].seconds = reply.seconds;
                reply.message[k][kMessageBytes - 1] = '\0';
                results[k].detail = printable(reply.message[k]);
                placed.collect(k, results[k]);
            }
        } else {
            if (reply.kind == Reply::fault) {
                const std::string place = placed.locate(reply.address, results.front().where);
                const char* access = reply.is_write ? "write" : "read";
                if (!place.empty()) {
                    results.front().kind = CallResult::Kind::out_of_bounds;
                    results.front().detail = fmt::format("out-of-bounds {} {}", access, place);
                } else if (reply.signal == SIGSEGV || reply.signal == SIGBUS) {
                    results.front().detail +=
                        fmt::format(" ({} of address {:#x})", access, reply.address);
                }
            }
            for (std::size_t k = 1; k < calls.size(); ++k) results[k] = results.front();
        }
        arena_->give_back(placed.bytes_used());
        return results;
    }

    /// Sends a request and waits. False when the worker did not return; `result` then says what
    /// happened.
    bool exchange(const Request& request, double limit_s, const RunOptions& options, Reply& reply,
                  CallResult& result) {
        const std::int64_t limit_mib = options_.memory_mib + options.more_memory_mib;
        if (::send(socket_, &request, sizeof request, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sizeof request))
            return lost(result, CallResult::Kind::crashed, {});
        const auto start = Clock::now();
        const auto deadline = start + std::chrono::duration<double>(limit_s);
        std::size_t got = 0;
        while (got < sizeof reply) {
            pollfd waiting{socket_, POLLIN, 0};
            const int ready =
                poll(&waiting, 1,
                     got == 0 && Clock::now() - start < std::chrono::milliseconds(5) ? 5 : 20);
            if (ready < 0 && errno != EINTR) return lost(result, CallResult::Kind::crashed, {});
            if (ready <= 0 && options_.stopped()) {
                stop();
                throw Stopped();
            }
            if (ready > 0) {
                const ssize_t n =
                    ::recv(socket_, reinterpret_cast<char*>(&reply) + got, sizeof reply - got, 0);
                if (n <= 0) {
                    reply.kind = Reply::returned;
                    return lost(result, CallResult::Kind::crashed, {});
                }
                got += static_cast<std::size_t>(n);
                continue;
            }
            if (is_beyond(limit_mib))
                return lost(result, CallResult::Kind::out_of_memory,
                            fmt::format("used more than {} MiB of memory", limit_mib));
            if (Clock::now() >= deadline)
                return lost(result, CallResult::Kind::timed_out,
                            fmt::format("timed out after {:g} s", limit_s));
        }
        if (reply.kind == Reply::fault) return lost(result, CallResult::Kind::crashed, {});
        // Calls that are over before anybody looks may leak.
        constexpr auto kLookEvery = std::chrono::milliseconds(20);
        if (const auto now = Clock::now(); now - looked_ >= kLookEvery) {
            looked_ = now;
            if (is_beyond(limit_mib))
                return lost(result, CallResult::Kind::out_of_memory,
                            fmt::format("used more than {} MiB of memory", limit_mib));
        }
        return true;
    }

    bool is_beyond(std::int64_t limit_mib) const {
        return resident_mib(pid_, arena_->resident_mib()) > limit_mib;
    }

    /// The worker is gone or must go. Always false.
    bool lost(CallResult& result, CallResult::Kind kind, std::string detail) {
        result.kind = kind;
        int status = 0;
        if (kind != CallResult::Kind::crashed) kill(pid_, SIGKILL);
        // A worker that closed its socket without dying (the candidate called close or _exit in a
        // thread) is ended.
        for (int tries = 0; waitpid(pid_, &status, WNOHANG) == 0; ++tries) {
            if (tries == 200) kill(pid_, SIGKILL);
            usleep(1000);
        }
        kill(-pid_, SIGKILL);  // what it forked
        pid_ = -1;
        close(socket_);
        socket_ = -1;
        if (kind == CallResult::Kind::crashed) detail = describe_end(status);
        result.detail = std::move(detail);
        return false;
    }

    void start() {
        const std::string identity = identity_of(options_.library);
        if (!identity_.empty() && identity != identity_)
            throw LoadError(
                fmt::format("{}: the library changed while the run went on", options_.library));
        identity_ = identity;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            throw LoadError("cannot create a socket pair");
        const std::string socket_text = std::to_string(pair[1]),
                          arena_text = std::to_string(arena_->descriptor());
        std::vector<const char*> arguments{options_.worker.c_str()};
        for (const std::string& argument : options_.worker_arguments)
            arguments.push_back(argument.c_str());
        arguments.insert(arguments.end(), {socket_text.c_str(), arena_text.c_str(),
                                           options_.library.c_str(),
                                           options_.behind.empty() ? nullptr : options_.behind.c_str(),
                                           nullptr});
        std::string profile = fmt::format("{}{}", kProfileVariable, name_of(options_.profile));
        std::vector<char*> environment{profile.data()};
        for (char** variable = environ; *variable != nullptr; ++variable)
            if (!std::string_view(*variable).starts_with(kProfileVariable))
                environment.push_back(*variable);
        environment.push_back(nullptr);
        pid_ = fork();
        if (pid_ < 0) {
            for (const int end : pair) close(end);
            throw LoadError("cannot start a worker process");
        }
        if (pid_ == 0) {
            setpgid(0, 0);  // Ctrl-C is for the suite, which still has to report
            fcntl(pair[1], F_SETFD, 0);
            fcntl(arena_->descriptor(), F_SETFD, 0);
            const int null = open("/dev/null", O_RDWR);
            dup2(null, 0);
            dup2(null, 1);  // a candidate that prints must not spoil reports
            if (!options_.show_stderr) dup2(null, 2);
            prefer_for_out_of_memory();
            for (const int ignored : {SIGPIPE, SIGXFSZ})  // by the suite alone
                signal(ignored, SIG_DFL);
            execve(options_.worker.c_str(), const_cast<char* const*>(arguments.data()),
                   environment.data());
            _exit(127);
        }
        setpgid(pid_, pid_);  // whoever is first
        close(pair[1]);
        socket_ = pair[0];
        info_.path = options_.library;
        try {
            read_hello();
        } catch (...) {
            stop();
            throw;
        }
    }

    void read_hello() {
        // Loading does not count towards the time limit of a call. What was loaded once takes about
        // as long again.
        const auto start = Clock::now();
        const auto deadline = start + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(load_limit_s_));
        Hello hello{};
        if (!receive(&hello, sizeof hello, deadline) || hello.magic != kHelloMagic)
            throw LoadError(Clock::now() >= deadline
                                ? fmt::format("{}: did not finish loading in {:g} s",
                                              options_.library, load_limit_s_)
                                : fmt::format("{}: the worker {} died while loading it",
                                              options_.library, options_.worker));
        if (hello.bytes > kLongestHello)
            throw LoadError(fmt::format("{}: announces {} bytes about itself, allowed: {}",
                                        options_.library, hello.bytes, kLongestHello));
        std::string text(hello.bytes, '\0');
        if (!receive(text.data(), text.size(), deadline))
            throw LoadError(fmt::format("{}: the worker died while loading it", options_.library));
        std::istringstream lines(text);
        std::string ok, names;
        std::getline(lines, ok);
        if (ok != "ok")
            throw LoadError(fmt::format(
                "cannot load {}: {}",
                options_.behind.empty() ? options_.library : "aclnn:" + options_.behind,
                printable_line(ok, kLongestError)));
        std::getline(lines, info_.name);
        std::getline(lines, info_.precision);
        std::getline(lines, info_.features);
        std::getline(lines, names);
        info_.name = printable_line(info_.name, kLongestName);
        info_.precision = printable_line(info_.precision, kLongestError);
        info_.features = printable_line(info_.features, kLongestError);
        info_.operators.clear();
        std::istringstream words(names);
        for (std::string op; words >> op;) info_.operators.push_back(op);
        constexpr double kLeastLimit = 5, kSlower = 3;
        const std::chrono::duration<double> took = Clock::now() - start;
        load_limit_s_ = std::min(load_limit_s_, std::max(kLeastLimit, kSlower * took.count()));
    }

    bool receive(void* data, std::size_t bytes, Clock::time_point deadline) {
        char* to = static_cast<char*>(data);
        while (bytes > 0) {
            pollfd waiting{socket_, POLLIN, 0};
            const int ready = poll(&waiting, 1, 20);
            if (ready <= 0) {
                if (ready < 0 && errno != EINTR) return false;
                if (options_.stopped()) throw Stopped();
                if (Clock::now() >= deadline) return false;
                continue;
            }
            const ssize_t n = ::recv(socket_, to, bytes, 0);
            if (n <= 0) return false;
            to += n;
            bytes -= static_cast<std::size_t>(n);
        }
        return true;
    }

    void stop() {
        if (socket_ >= 0) close(socket_);
        socket_ = -1;
        if (pid_ > 0) {
#ifdef ATTNCHECK_COVERAGE  // an idle worker ends itself, and writes its counters first
            for (int tries = 0; tries < 2000; ++tries) {
                if (waitpid(pid_, nullptr, WNOHANG) != 0) break;
                usleep(1000);
            }
#endif
            kill(pid_, SIGKILL);
            kill(-pid_, SIGKILL);  // what it forked: the group lives as long as one of them
            waitpid(pid_, nullptr, 0);
        }
        pid_ = -1;
    }

    WorkerOptions options_;
    std::shared_ptr<Arena> arena_ = Arena::shared();
    CandidateInfo info_;
    double limit_s_ = 10;
    Clock::time_point looked_{};  ///< when memory was measured last
    double load_limit_s_ = 60;
    std::string identity_;  ///< of the library that was loaded first
    pid_t pid_ = -1;
    int socket_ = -1;
};

std::string find_beside(const char* variable, const std::vector<std::string>& relative,
                        const std::string& what) {
    namespace fs = std::filesystem;
    if (const char* path = std::getenv(variable); path && *path) return path;
    std::error_code ignored;
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const auto& path : relative)
        if (const fs::path candidate = (here / path).lexically_normal(); fs::exists(candidate))
            return candidate;
    throw LoadError(
        fmt::format("{} is not beside {}; set {} to its path", what, here.string(), variable));
}

}  // namespace

bool CandidateInfo::implements(std::string_view op) const {
    return std::find(operators.begin(), operators.end(), op) != operators.end();
}

std::string find_worker() {
    return find_beside("ATTNCHECK_WORKER",
                       {"attncheck-worker", "../bin/attncheck-worker", ATTNCHECK_WORKER_FROM_BIN},
                       "attncheck-worker");
}

std::string find_builtin_library() {
    return find_beside("ATTNCHECK_BUILTIN",
                       {"../lib/libattncheck_builtin.so", ATTNCHECK_BUILTIN_FROM_BIN},
                       "libattncheck_builtin.so");
}

std::string find_aclnn_adapter() {
    return find_beside("ATTNCHECK_ACLNN_ADAPTER",
                       {"../lib/libattncheck_aclnn_adapter.so", ATTNCHECK_ADAPTER_FROM_BIN},
                       "libattncheck_aclnn_adapter.so");
}

std::string find_acl_library() {
    return find_beside("ATTNCHECK_ACL", {"../lib/libattncheck_acl.so", ATTNCHECK_ACL_FROM_BIN},
                       "libattncheck_acl.so");
}

std::string find_worker_library() {
    return find_beside("ATTNCHECK_WORKER_LIBRARY",
                       {"../lib/libattncheck_worker.so", ATTNCHECK_WORKER_LIBRARY_FROM_BIN},
                       "libattncheck_worker.so");
}

std::string find_python_worker() {
    const std::string file = "/attncheck/_worker.py";
    return find_beside("ATTNCHECK_PYTHON_WORKER",
                       {"../../_worker.py",  // in a wheel
                        ATTNCHECK_PYTHON_FROM_BIN + file, ATTNCHECK_PYTHON_SOURCES + file},
                       "the worker for Python");
}

std::string find_mutants_library() {
    return find_beside("ATTNCHECK_MUTANTS", {"../lib/libattncheck_mutants.so"},
                       "libattncheck_mutants.so");
}

std::unique_ptr<Candidate> open_worker_candidate(const WorkerOptions& options) {
    return std::make_unique<WorkerCandidate>(options);
}

}  // namespace attncheck::properties
