// Files of a run: a regular file is written as a whole or not at all, anything else is written to
// as it is.
#pragma once

#include <cstddef>
#include <string>

namespace attncheck::properties {

/// Replaces a regular file, or the one that a symbolic link leads to, as a whole or not at all; its
/// permissions stay. A pipe, a device or /dev/stdout is opened and written to. Throws
/// std::runtime_error naming the path.
void write_file(const std::string& path, const std::string& text);

/// The text of a report, at most one byte more than a report may have. Throws std::runtime_error
/// naming the path.
std::string read_report(const std::string& path);
inline constexpr std::size_t kLargestReport = 64 << 20;  ///< bytes

/// Throws std::runtime_error when write_file could not write there; leaves nothing behind.
void check_writable(const std::string& path);

/// Whether both paths lead to one file, which need not be there yet.
bool is_same_file(const std::string& one, const std::string& other);

/// Whether write_file replaces a file there, so that it may be called several times in one run.
bool is_replaceable(const std::string& path);

}  // namespace attncheck::properties
