// What the processes of a run wrote to disk.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

namespace attncheck::properties {

/// Files below a folder, and those of its file system that `processes` hold open after removing
/// them. A file counts once, with the blocks that it takes on disk; folders count too.
struct WrittenFiles {
    std::int64_t mib = 0, count = 0;
    bool is_too_deep = false;  ///< has folders in folders beyond kDeepestFolder, which are left out
};
inline constexpr int kDeepestFolder = 64;

/// Counting ends when there are more than so many files, and does not follow links.
WrittenFiles written_files(const std::string& folder, std::span<const pid_t> processes,
                           std::int64_t most_files);

}  // namespace attncheck::properties
