#include "properties/candidate/worker_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/candidate/process_family.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/candidate/worker_process.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kProfileVariable = "ATTNCHECK_PROFILE=";

/// In a container that runs out of memory the kernel shall take the worker, not the suite.
void prefer_for_out_of_memory() {
    // Files of a process that nobody may look into belong to root.
    const int was_dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, was_dumpable, 0, 0, 0);
    if (file < 0) return;
    (void)!write(file, "1000", 4);
    close(file);
}

/// For good: it cannot be raised again.
void lower_limit(__rlimit_resource which, rlim_t most) {
    rlimit limit{};
    if (getrlimit(which, &limit) != 0) return;
    limit.rlim_max = std::min(limit.rlim_max, most);
    limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
    setrlimit(which, &limit);
}

/// Memory of the system lies behind descriptors, which nobody counts: of sockets some 400 KiB. And
/// the suite looks at each of them.
constexpr rlim_t kMostOpen = 4096;

/// Descriptors of the suite and of who called it; two are for the worker.
void keep_descriptors(int socket, int arena) {
    constexpr unsigned kFirst = 3;
    if (close_range(kFirst, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {  // since Linux 5.11
        constexpr int kMostDescriptors = 1024;
        for (int fd = kFirst; fd < kMostDescriptors; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    fcntl(socket, F_SETFD, 0);
    if (arena >= 0) fcntl(arena, F_SETFD, 0);
}

std::vector<std::string> environment_of(const WorkerOptions& options) {
    std::vector<std::string> all{
        fmt::format("{}{}", kProfileVariable, name_of(options.profile)), mark_of_run()};
    std::vector<std::string> others;
    if (options.sandbox)
        others = sandboxed_environment(environ, options.variables, options.sandbox->folder());
    else
        for (char** variable = environ; *variable != nullptr; ++variable)
            others.emplace_back(*variable);
    for (std::string& variable : others)
        if (!variable.starts_with(kProfileVariable)) all.push_back(std::move(variable));
    return all;
}

}  // namespace

std::int64_t largest_file(const WorkerOptions& options) {
    constexpr std::int64_t kLeast = 16 << 10;
    return std::max(options.memory_mib, kLeast);
}

void become_program(const WorkerOptions& options, const WorkerDescriptors& given) {
    setpgid(0, 0);  // Ctrl-C is for the suite, which still has to report
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    const int messages = given.messages >= 0 ? given.messages : null;
    for (const int printed : {1, 2}) dup2(messages, printed);  // a candidate that prints must not spoil reports
    prefer_for_out_of_memory();
    lower_limit(RLIMIT_FSIZE, static_cast<rlim_t>(largest_file(options)) << 20);
    if (options.sandbox) lower_limit(RLIMIT_NOFILE, kMostOpen);
    for (const int ignored : {SIGPIPE, SIGXFSZ})  // by the suite alone
        signal(ignored, SIG_DFL);
    const std::string socket_text = std::to_string(given.socket),
                      arena_text = std::to_string(given.arena);
    std::vector<const char*> arguments{options.worker.c_str()};
    for (const std::string& argument : options.worker_arguments)
        arguments.push_back(argument.c_str());
    arguments.insert(arguments.end(),
                     {socket_text.c_str(), arena_text.c_str(), options.library.c_str(),
                      options.behind.empty() ? nullptr : options.behind.c_str(), nullptr});
    std::vector<std::string> variables = environment_of(options);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    mark_by_limit();
    keep_descriptors(given.socket, given.arena);
    if (options.sandbox && !options.sandbox->enter()) _exit(kNoSandbox);
    execve(options.worker.c_str(), const_cast<char* const*>(arguments.data()), environment.data());
    _exit(kNoWorker);
}

}  // namespace attncheck::properties
