// Who may include what, as the table of rooms says: the folder at the top decides.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attncheck::layering {

/// "impl/tiles.cc:12: impl/ may not include ref/numbers/dtype.h", one entry each.
using Violations = std::vector<std::string>;

/// Rooms whose includes are restricted.
const std::vector<std::string>& rooms();

/// Checks the text of one file, whose path is relative to the root of the repository.
Violations violations_in(const std::string& path, const std::string& text);

/// Checks every C and C++ file of the restricted rooms; files_read counts them.
Violations violations_below(const std::filesystem::path& root, std::size_t& files_read);

}  // namespace attncheck::layering
