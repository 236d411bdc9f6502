// Who may include what, as the table of rooms says: the folder at the top decides, then the inner
// room.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attncheck::layering {

/// Lines such as "impl/tiles.cc:12: impl/ may not include ref/numbers/dtype.h".
using Violations = std::vector<std::string>;

/// One include line of a file whose path is relative to the root of the repository.
struct Include {
    std::string path;
    int line = 0;
    std::string written, target;  ///< target: from the root, where it is a file of the repository
    bool quoted = false;
};

/// Rooms whose includes are restricted.
const std::vector<std::string>& rooms();

std::vector<Include> includes_in(const std::string& path, const std::string& text);

/// Of every C and C++ file of the restricted rooms, in order; files_read counts them.
std::vector<Include> includes_below(const std::filesystem::path& root, std::size_t& files_read);

/// Includes that no rule allows.
Violations violations_of(const std::vector<Include>& includes);

/// Listed exceptions of the inner rooms that are no longer needed.
Violations exceptions_without_use(const std::vector<Include>& includes);

/// The include lines of one circle of inner rooms; empty when there is none.
Violations circle_of(const std::vector<Include>& includes);

}  // namespace attncheck::layering
