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
#include <iterator>
#include <map>
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

/// Of the lines "KEY: n kB" of a file of /proc, one key for each kind.
struct Sizes {
    std::int64_t anonymous_kib = 0, shared_kib = 0;
};

Sizes sizes_in(const std::string& path, std::string_view anonymous, std::string_view shared) {
    Sizes sizes;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(anonymous))
            sizes.anonymous_kib += std::atoll(line.c_str() + anonymous.size());
        if (line.starts_with(shared))
            sizes.shared_kib += std::atoll(line.c_str() + shared.size());
    }
    return sizes;
}

using FileId = std::pair<dev_t, ino_t>;

/// Files in memory that a process has open, with their size in KiB: what was written to one counts
/// although nobody maps it.
void add_files(pid_t pid, std::map<FileId, std::int64_t>& files) {
    constexpr std::int64_t kBlocksPerKib = 2;
    for_each_entry(fmt::format("/proc/{}/fd", pid), [&](const std::string& path) {
        struct stat file{};
        if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return;
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
    std::ifstream in(fmt::format("/proc/{}/stat", pid));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto name_end = text.rfind(')');  // the name may hold anything
    return name_end != std::string::npos && name_end + 2 < text.size() &&
           text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

std::vector<pid_t> descendants_of(pid_t pid) {
    std::vector<pid_t> out;
    for (const pid_t child : children_of(pid)) {
        if (is_running(child)) out.push_back(child);
        std::ranges::copy(descendants_of(child), std::back_inserter(out));
    }
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

std::int64_t memory_mib_of(std::span<const pid_t> processes, std::int64_t arena_mib, int arena,
                           std::int64_t limit_mib) {
    constexpr std::int64_t kKib = 1024;
    std::map<FileId, std::int64_t> files;
    for (const pid_t pid : processes) add_files(pid, files);
    struct stat own{};
    if (fstat(arena, &own) == 0) files.erase({own.st_dev, own.st_ino});
    std::int64_t in_files = 0;
    for (const auto& [id, kib] : files) in_files += kib;
    const auto sum = [&](const char* file, std::string_view anonymous, std::string_view shared) {
        std::int64_t own_kib = 0, shared_kib = 0;
        for (const pid_t pid : processes) {
            const Sizes sizes = sizes_in(fmt::format("/proc/{}/{}", pid, file), anonymous, shared);
            own_kib += sizes.anonymous_kib;
            shared_kib += sizes.shared_kib;
        }
        // A file in memory that is mapped is in both sums.
        shared_kib = std::max<std::int64_t>(0, shared_kib - arena_mib * kKib);
        return (own_kib + std::max(shared_kib, in_files)) / kKib;
    };
    const std::int64_t estimate = sum("status", "RssAnon:", "RssShmem:");
    if (estimate <= limit_mib || processes.size() == 1) return estimate;
    // Pages that processes share are divided among them here (proc(5), smaps_rollup).
    return std::min(estimate, sum("smaps_rollup", "Pss_Anon:", "Pss_Shmem:"));
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
    for (const pid_t pid : children_of(getpid())) {
        if (std::ranges::find(kept, pid) != kept.end() || !is_marked(pid)) continue;
        std::vector<pid_t> all = descendants_of(pid);
        all.push_back(pid);
        for (const pid_t one : all) kill(one, SIGKILL);
        waitpid(pid, nullptr, 0);
        ended += static_cast<int>(all.size());
    }
    return ended;
}

}  // namespace attncheck::properties
