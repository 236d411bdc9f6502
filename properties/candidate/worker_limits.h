// What the processes of a candidate may take of the system, beyond time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "properties/candidate/candidate.h"
#include "properties/candidate/written_files.h"

namespace attncheck::properties {

class Arena;

inline constexpr std::size_t kMostProcesses = 256;  ///< that a candidate may have forked at a time
/// Of all its processes together. A system has some 30,000; a runtime of tasks starts a few for each core.
inline constexpr std::int64_t kMostThreads = 4096;
inline constexpr std::int64_t kMostFiles = 100'000;  ///< of a run; PyTorch's caches have thousands

/// A limit of the candidate's that it went beyond.
struct Excess {
    CallResult::Kind kind;
    std::string what;
};

struct Taken {
    std::span<const pid_t> family;     ///< the worker and what it forked
    const Arena& arena;
    std::int64_t arena_mib_before;     ///< of the arena's pages
    std::string folder;                ///< the private one; empty: none
    WrittenFiles written_before = {};  ///< there, by others
};

/// Files have the limit of memory, without `more_mib`: some systems keep the private folder there.
std::optional<Excess> excess_of(const Taken& taken, std::int64_t limit_mib, std::int64_t more_mib);

}  // namespace attncheck::properties
