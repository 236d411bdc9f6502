#include "properties/candidate/worker_hello.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <sstream>

#include "properties/candidate/worker_candidate.h"
#include "properties/candidate/worker_process.h"
#include "properties/case/printable.h"

namespace attncheck::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestName = 120, kLongestError = 1000;  ///< bytes, of what is printed

/// What is wrong, without the path of the library that it begins with.
std::string without_path(const std::string& text, const std::string& path) {
    for (const std::string& head : {path + ": ", path + " "})
        if (text.starts_with(head)) return text.substr(head.size());
    return text;
}

/// Receives from a worker that is loading its library.
class Receiver {
public:
    Receiver(WorkerProcess& process, const WorkerOptions& options, double limit_s,
             const std::function<std::string()>& reason_to_stop)
        : process_(process),
          options_(options),
          limit_s_(limit_s),
          reason_to_stop_(reason_to_stop),
          deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(limit_s))) {}

    void receive(void* data, std::size_t bytes) {
        char* to = static_cast<char*>(data);
        while (bytes > 0) {
            const WorkerProcess::News news = process_.wait(20);
            const std::size_t n =
                news == WorkerProcess::News::bytes ? process_.receive(to, bytes) : 0;
            if (news == WorkerProcess::News::silence || Clock::now() >= deadline_)
                check_limits();
            else if (n == 0)
                refuse_end(process_.end(false));
            to += n;
            bytes -= n;
        }
    }

    [[noreturn]] void refuse(const std::string& why) const {
        throw LoadError(fmt::format("{}: {}", options_.library, why));
    }

private:
    [[noreturn]] void refuse_end(int status) const {
        if (WIFEXITED(status) && WEXITSTATUS(status) == kNoWorker)
            throw LoadError(fmt::format("cannot start the worker {}", options_.worker));
        if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSandbox)
            throw LoadError("the worker cannot enter its sandbox; --sandbox off runs without one");
        refuse(describe_end(status, options_) + " while it was loaded");
    }

    void check_limits() const {
        if (options_.stopped()) throw Stopped();
        if (const std::string why = reason_to_stop_(); !why.empty()) refuse(why + " while it was loaded");
        if (Clock::now() >= deadline_)
            refuse(fmt::format("did not finish loading in {:g} s; {} gives it more", limit_s_,
                               options_.load_limit_s > 0 ? "--budget" : "--timeout"));
    }

    WorkerProcess& process_;
    const WorkerOptions& options_;
    double limit_s_;
    const std::function<std::string()>& reason_to_stop_;
    Clock::time_point deadline_;
};

}  // namespace

CandidateInfo read_hello(WorkerProcess& process, const WorkerOptions& options, double limit_s,
                         const std::function<std::string()>& reason_to_stop) {
    Receiver receiver(process, options, limit_s, reason_to_stop);
    Hello hello{};
    receiver.receive(&hello, sizeof hello);
    if (hello.magic != kHelloMagic) receiver.refuse("said something else than its worker does");
    if (hello.bytes > kLongestHello)
        receiver.refuse(fmt::format("announces {} bytes about itself, allowed: {}", hello.bytes,
                                    kLongestHello));
    std::string text(hello.bytes, '\0');
    receiver.receive(text.data(), text.size());
    std::istringstream lines(text);
    std::string ok, names;
    std::getline(lines, ok);
    if (ok != "ok")
        throw LoadError(
            fmt::format("cannot load {}: {}",
                        options.behind.empty() ? options.library : "aclnn:" + options.behind,
                        printable_line(without_path(ok, options.library), kLongestError)));
    CandidateInfo info;
    info.path = options.library;
    std::getline(lines, info.name);
    std::getline(lines, info.precision);
    std::getline(lines, info.features);
    std::getline(lines, names);
    info.name = printable_line(info.name, kLongestName);
    info.precision = printable_line(info.precision, kLongestError);
    info.features = printable_line(info.features, kLongestError);
    std::istringstream words(names);
    for (std::string op; words >> op;) info.operators.push_back(op);
    return info;
}

}  // namespace attncheck::properties
