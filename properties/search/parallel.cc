#include "properties/search/parallel.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {
namespace {

bool read_all(int fd, void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = read(fd, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
        const ssize_t put = send(fd, at, bytes, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += put;
        bytes -= static_cast<std::size_t>(put);
    }
    return true;
}

/// A text with its length in front.
bool read_text(int fd, std::string& text) {
    std::uint64_t size = 0;
    if (!read_all(fd, &size, sizeof size)) return false;
    text.resize(size);
    return read_all(fd, text.data(), size);
}

bool write_text(int fd, const std::string& text) {
    const std::uint64_t size = text.size();
    return write_all(fd, &size, sizeof size) && write_all(fd, text.data(), text.size());
}

/// Of processes that end before one of them answers: a library that cannot be loaded any more is
/// not tried for ever.
constexpr int kMostReplacements = 4;

constexpr double kLookEvery = 1;  ///< seconds, at the state of processes

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// By SIGSTOP or a debugger.
bool is_stopped(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto name_end = text.rfind(')');  // the name may hold anything
    return name_end != std::string::npos && name_end + 2 < text.size() &&
           (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

/// In front of what a process says; the first, of which nothing follows, is that it has started.
constexpr char kReady = 'r', kNews = 'n', kAnswer = 'a';

[[noreturn]] void serve_until_closed(int fd, const std::function<Processes::Serve()>& start) {
    try {
        const Processes::Serve serve = start();
        if (!write_text(fd, std::string(1, kReady))) _exit(1);
        const auto tell = [&](const std::string& news) {
            if (!write_text(fd, kNews + news)) _exit(1);
        };
        for (std::string question; read_text(fd, question);)
            if (!write_text(fd, kAnswer + serve(question, tell))) break;
    } catch (const Stopped&) {
        _exit(1);  // the time was over before the library was loaded
    } catch (const std::exception& e) {
        std::cerr << "attncheck: " << e.what() << std::endl;
        _exit(1);
    }
    _exit(0);
}

}  // namespace

struct Processes::Child {
    pid_t pid = -1;
    int fd = -1;
    bool busy = false;
    int process = 0;
    std::size_t number = 0;
    int stopped = 0;  ///< how often in a row it was seen stopped
};

Processes::Processes(int count, const std::function<Serve()>& start, double patience)
    : start_(start),
      most_looks_(static_cast<int>(patience / kLookEvery)),
      replacements_left_(kMostReplacements) {
    for (int k = 0; k < count; ++k)
        if (!start_one(children_.emplace_back())) {
            children_.pop_back();
            break;  // the others do its work
        }
    if (children_.empty()) throw std::runtime_error("cannot start a process");
}

bool Processes::start_one(Child& child) {
    std::cout.flush();
    std::fflush(nullptr);
    const pid_t parent = getpid();
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
    const pid_t pid = fork();
    if (pid < 0) {
        for (const int end : pair) close(end);
        return false;
    }
    if (pid == 0) {
        close(pair[0]);
        for (const Child& other : children_)
            if (other.fd >= 0) close(other.fd);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        serve_until_closed(pair[1], start_);
    }
    close(pair[1]);
    child = {pid, pair[0], false, started_++, 0, 0};
    return true;
}

Processes::~Processes() {
    for (const Child& child : children_) {
        if (child.fd >= 0) close(child.fd);
        if (child.busy) kill(child.pid, SIGKILL);
    }
    for (const Child& child : children_)
        if (child.pid > 0) waitpid(child.pid, nullptr, 0);
}

void Processes::ask(std::size_t number, const std::string& question) {
    const std::vector<int> all = idle();
    if (all.empty()) throw std::logic_error("no process is idle");
    ask(number, question, all.front());
}

void Processes::ask(std::size_t number, const std::string& question, int process) {
    const auto child = std::ranges::find_if(children_, [&](const Child& one) {
        return !one.busy && one.fd >= 0 && one.process == process;
    });
    if (child == children_.end()) throw std::logic_error("the process is not idle");
    child->busy = true;
    child->number = number;
    // A process that is gone shows when its answer is read.
    if (!write_text(child->fd, question)) kill(child->pid, SIGKILL);
}

std::vector<int> Processes::idle() {
    std::vector<int> processes;
    for (Child& child : children_) {
        if (child.fd < 0 && replacements_left_ > 0) {
            --replacements_left_;
            start_one(child);
        }
        if (!child.busy && child.fd >= 0) processes.push_back(child.process);
    }
    return processes;
}

bool Processes::any_busy() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.busy; });
}

/// Looks are counted, not seconds: with the suite itself stopped, none is lost.
void Processes::end_stopped() {
    const double now = seconds_now();
    if (now - looked_ < kLookEvery) return;
    looked_ = now;
    for (Child& child : children_) {
        if (!child.busy || child.stopped > most_looks_) continue;
        child.stopped = is_stopped(child.pid) ? child.stopped + 1 : 0;
        if (child.stopped > most_looks_) kill(child.pid, SIGKILL);
    }
}

void Processes::wait_for_first(const std::function<bool()>& is_over) const {
    std::vector<pollfd> fds;
    for (const Child& child : children_) fds.push_back({child.fd, POLLIN, 0});
    constexpr int kLookEveryMs = 50;
    while (poll(fds.data(), fds.size(), kLookEveryMs) == 0 && !is_over()) {}
}

bool Processes::wait(double seconds, Answer& answer) {
    end_stopped();
    std::vector<pollfd> fds;
    std::vector<Child*> waiting;
    for (Child& child : children_)
        if (child.busy) {
            fds.push_back({child.fd, POLLIN, 0});
            waiting.push_back(&child);
        }
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(seconds * 1000));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
    if (ready < 0) {  // no memory for it: without news, the processes are of no use
        for (std::size_t k = 0; k < fds.size(); ++k) {
            kill(waiting[k]->pid, SIGKILL);
            fds[k].revents = POLLIN;
        }
    }
    for (std::size_t k = 0; k < fds.size(); ++k) {
        if (fds[k].revents == 0) continue;
        Child& child = *waiting[k];
        answer.number = child.number;
        answer.process = child.process;
        answer.lost = !read_text(child.fd, answer.text) || answer.text.empty();
        answer.is_final = answer.lost || answer.text.front() == kAnswer;
        if (!answer.lost && answer.text.front() == kReady) return false;
        if (!answer.lost) answer.text.erase(0, 1);
        child.busy = !answer.is_final;
        if (!answer.lost) replacements_left_ = kMostReplacements;
        if (answer.lost) {
            answer.why = child.stopped > most_looks_
                             ? "its process was stopped from outside and did not go on"
                             : "its process ended without an answer";
            close(child.fd);
            kill(child.pid, SIGKILL);
            waitpid(child.pid, nullptr, 0);
            child = {};
        }
        return true;
    }
    return false;
}

void Processes::give_up() const {
    for (const Child& child : children_)
        if (child.busy) kill(child.pid, SIGKILL);
}

void Processes::signal(int number) const {
    for (const Child& child : children_)
        if (child.fd >= 0) kill(child.pid, number);
}

}  // namespace attncheck::properties
