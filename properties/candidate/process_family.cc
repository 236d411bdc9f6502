#include "properties/candidate/process_family.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

/// Entries of a folder of /proc. A process may end while it is read.
template <typename Visit>
void for_each_entry(const std::string& folder, const Visit& visit) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        visit(at->path().string());
}

std::vector<pid_t> children_of(pid_t pid) {
    std::vector<pid_t> out;
    for_each_entry(fmt::format("/proc/{}/task", pid), [&](const std::string& thread) {
        std::ifstream children(thread + "/children");
        for (pid_t child = 0; children >> child;) out.push_back(child);
    });
    return out;
}

/// What /proc/PID/stat says of a process: its state and its number of threads (proc(5)).
struct State {
    char letter = 'X';  ///< that of a process that is gone
    long threads = 0;
};

State state_of(pid_t pid) {
    std::ifstream in(fmt::format("/proc/{}/stat", pid));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto name_end = text.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
    State state{text[name_end + 2]};
    constexpr int kFieldsBetween = 17;  // the state is field 3, the number of threads field 20
    std::istringstream rest(text.substr(name_end + 3));
    std::int64_t skipped = 0;
    for (int k = 0; k < kFieldsBetween - 1; ++k) rest >> skipped;
    rest >> state.threads;
    return state;
}

bool is_ended(char letter) { return letter == 'Z' || letter == 'X'; }

/// The folder in /proc that tells of the memory and the files of a process. The first thread of a
/// process may end before the others; its own folder is empty then.
std::string folder_of(pid_t pid) {
    const std::string own = fmt::format("/proc/{}", pid);
    const State state = state_of(pid);
    if (!is_ended(state.letter) || state.threads < 2) return own;
    std::string living = own;
    for_each_entry(own + "/task", [&](const std::string& thread) {
        if (!thread.ends_with(fmt::format("/{}", pid))) living = thread;
    });
    return living;
}

/// Sum in KiB of the lines "KEY: n kB" of a file of /proc.
std::int64_t kib_in(const std::string& path, std::initializer_list<std::string_view> keys) {
    std::int64_t kib = 0;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        for (const std::string_view key : keys)
            if (line.starts_with(key)) kib += std::atoll(line.c_str() + key.size());
    return kib;
}

using FileId = std::pair<dev_t, ino_t>;

/// Files in memory that a process has open, with their size in KiB: what was written to one counts
/// although nobody maps it. Nobody counts what lies in a socket, so that each counts as full.
void add_files(const std::string& folder, std::map<FileId, std::int64_t>& files) {
    constexpr std::int64_t kBlocksPerKib = 2;
    constexpr std::int64_t kSocketKib = 416;  // twice the usual net.core.wmem_max
    for_each_entry(folder + "/fd", [&](const std::string& path) {
        struct stat file{};
        if (stat(path.c_str(), &file) != 0) return;
        if (S_ISSOCK(file.st_mode)) files[{file.st_dev, file.st_ino}] = kSocketKib;
        if (!S_ISREG(file.st_mode)) return;
        struct statfs system{};
        if (statfs(path.c_str(), &system) != 0 || system.f_type != TMPFS_MAGIC) return;
        files[{file.st_dev, file.st_ino}] = file.st_blocks / kBlocksPerKib;
    });
}

}  // namespace

/// Far above what real-time processes get, and another number for every run.
static rlim_t mark_value() {
    static const rlim_t value = (rlim_t{1} << 62) + static_cast<rlim_t>(getpid());
    return value;
}

/// A process may write over its environment, not over its limits.
bool is_marked(pid_t pid) {
    std::ifstream in(fmt::format("/proc/{}/environ", pid), std::ios::binary);
    for (std::string one; std::getline(in, one, '\0');)
        if (one == mark_of_run()) return true;
    constexpr std::string_view kLine = "Max realtime timeout";
    std::ifstream limits(fmt::format("/proc/{}/limits", pid));
    for (std::string line; std::getline(limits, line);)
        if (line.starts_with(kLine))
            return std::strtoull(line.c_str() + kLine.size(), nullptr, 10) == mark_value();
    return false;
}

bool is_running(pid_t pid) {
    const State state = state_of(pid);
    return !is_ended(state.letter) || state.threads > 1;
}

std::vector<pid_t> descendants_of(pid_t pid) {
    constexpr std::size_t kMostAsked = 1024;  // of more it is enough that they are too many
    std::vector<pid_t> out = children_of(pid);
    if (out.size() > kMostAsked) return out;
    std::erase_if(out, [](pid_t child) { return !is_running(child); });
    for (const pid_t child : std::vector<pid_t>(out))
        std::ranges::copy(descendants_of(child), std::back_inserter(out));
    return out;
}

std::int64_t threads_of(std::span<const pid_t> processes) {
    constexpr std::string_view kLine = "Threads:";
    std::int64_t threads = 0;
    for (const pid_t pid : processes) {
        std::ifstream in(fmt::format("/proc/{}/status", pid));
        for (std::string line; std::getline(in, line);)
            if (line.starts_with(kLine)) threads += std::atoll(line.c_str() + kLine.size());
    }
    return threads;
}

std::size_t ended_children_of(std::span<const pid_t> processes) {
    std::size_t ended = 0;
    const std::set<pid_t> running(processes.begin(), processes.end());
    for (const pid_t pid : processes)
        for (const pid_t child : children_of(pid)) ended += running.contains(child) ? 0 : 1;
    return ended;
}

std::int64_t memory_mib_of(std::span<const pid_t> processes, std::int64_t arena_mib, int arena,
                           std::int64_t limit_mib) {
    constexpr std::int64_t kKib = 1024;
    std::vector<std::string> folders;
    for (const pid_t pid : processes) folders.push_back(folder_of(pid));
    std::map<FileId, std::int64_t> files;
    for (const std::string& folder : folders) add_files(folder, files);
    struct stat own{};
    if (fstat(arena, &own) == 0) files.erase({own.st_dev, own.st_ino});
    std::int64_t in_files = 0;
    for (const auto& [id, kib] : files) in_files += kib;
    // Beside its pages: what the system took out of memory for it, and the tables of its pages. A
    // table is there for an address that was only read, and has no other page then.
    std::int64_t beside_kib = 0;
    for (const std::string& folder : folders)
        beside_kib += kib_in(folder + "/status", {"VmSwap:", "VmPTE:", "HugetlbPages:"});
    const auto sum = [&](const char* file, std::string_view anonymous, std::string_view shared) {
        std::int64_t own_kib = 0, shared_kib = 0;
        for (const std::string& folder : folders) {
            own_kib += kib_in(folder + file, {anonymous});
            shared_kib += kib_in(folder + file, {shared});
        }
        // A file in memory that is mapped is in both sums.
        shared_kib = std::max<std::int64_t>(0, shared_kib - arena_mib * kKib);
        return (own_kib + beside_kib + std::max(shared_kib, in_files)) / kKib;
    };
    const std::int64_t estimate = sum("/status", "RssAnon:", "RssShmem:");
    if (estimate <= limit_mib || processes.size() == 1) return estimate;
    // Pages that processes share are divided among them here (proc(5), smaps_rollup).
    return std::min(estimate, sum("/smaps_rollup", "Pss_Anon:", "Pss_Shmem:"));
}

const std::string& mark_of_run() {
    (void)mark_value();  // of the same process
    static const std::string mark = fmt::format("ATTNCHECK_RUN={}", getpid());
    return mark;
}

void mark_by_limit() {
    const rlimit mark{mark_value(), mark_value()};
    (void)setrlimit(kMarkedLimit, &mark);  // refused where somebody set a lower one
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

int end_marked() {
    int ended = 0;
    for_each_entry("/proc", [&](const std::string& path) {
        const auto pid = static_cast<pid_t>(std::atoi(path.c_str() + std::string_view("/proc/").size()));
        if (pid > 0 && is_running(pid) && is_marked(pid)) ended += kill(pid, SIGKILL) == 0;
    });
    return ended;
}

int end_adopted(std::span<const pid_t> kept) {
    int ended = 0;
    std::vector<pid_t> adopted;
    for (const pid_t pid : children_of(getpid())) {
        if (std::ranges::find(kept, pid) != kept.end()) continue;
        // Nobody else asks for one that ended.
        if (!is_running(pid)) {
            (void)waitpid(pid, nullptr, WNOHANG);
            continue;
        }
        if (!is_marked(pid)) continue;
        std::vector<pid_t> all = descendants_of(pid);
        all.push_back(pid);
        for (const pid_t one : all) kill(one, SIGKILL);
        adopted.push_back(pid);
        ended += static_cast<int>(all.size());
    }
    // Not for ever: one that traces another keeps its end from this process until it ends itself.
    constexpr int kMostTries = 200;
    for (int tries = 0; tries < kMostTries; ++tries) {
        std::erase_if(adopted, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
        if (adopted.empty()) break;
        constexpr useconds_t kShort = 50, kLong = 1000;
        usleep(tries < 10 ? kShort : kLong);
    }
    return ended;
}

}  // namespace attncheck::properties
