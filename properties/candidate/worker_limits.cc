#include "properties/candidate/worker_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/candidate/arena.h"
#include "properties/candidate/process_family.h"

namespace attncheck::properties {
namespace {

std::optional<Excess> processes_beyond(const Taken& taken) {
    using Kind = CallResult::Kind;
    // One that ended has a place in the system's table until somebody asks for it.
    if (taken.family.size() > kMostProcesses + 1 ||
        taken.family.size() + ended_children_of(taken.family) > kMostProcesses + 1)
        return Excess{Kind::left_processes,
                      fmt::format("started more than {} processes", kMostProcesses)};
    if (threads_of(taken.family) > kMostThreads)
        return Excess{Kind::broke_rules, fmt::format("started more than {} threads", kMostThreads)};
    return std::nullopt;
}

std::optional<Excess> memory_beyond(const Taken& taken, std::int64_t limit_mib) {
    const std::int64_t arena_mib = taken.arena.resident_mib();
    const std::int64_t in_arena = std::max<std::int64_t>(0, arena_mib - taken.arena_mib_before);
    const std::int64_t elsewhere = memory_mib_of(taken.family, arena_mib, taken.arena.descriptor(),
                                                 limit_mib - in_arena);
    if (in_arena + elsewhere <= limit_mib) return std::nullopt;
    return Excess{CallResult::Kind::out_of_memory,
                  fmt::format("used more than {} MiB of memory", limit_mib)};
}

std::optional<Excess> files_beyond(const Taken& taken, std::int64_t limit_mib) {
    if (taken.folder.empty()) return std::nullopt;
    constexpr auto kKind = CallResult::Kind::broke_rules;
    const WrittenFiles now = written_files(taken.folder, taken.family, 2 * kMostFiles),
                       before = taken.written_before;
    if (now.mib - before.mib > limit_mib)
        return Excess{kKind, fmt::format("wrote more than {} MiB of files", limit_mib)};
    if (now.count - before.count > kMostFiles)
        return Excess{kKind, fmt::format("wrote more than {} files", kMostFiles)};
    if (now.is_too_deep && !before.is_too_deep)
        return Excess{kKind, fmt::format("made folders more than {} deep", kDeepestFolder)};
    return std::nullopt;
}

}  // namespace

std::optional<Excess> excess_of(const Taken& taken, std::int64_t limit_mib, std::int64_t more_mib) {
    if (auto excess = processes_beyond(taken)) return excess;
    if (auto excess = memory_beyond(taken, limit_mib + more_mib)) return excess;
    return files_beyond(taken, limit_mib);
}

}  // namespace attncheck::properties
