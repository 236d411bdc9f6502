// Files of a run: written as a whole or not at all.
#pragma once

#include <string>

namespace attncheck::properties {

/// Writes a file as a whole or not at all. Throws std::runtime_error naming the path.
void write_file(const std::string& path, const std::string& text);

/// Throws std::runtime_error when write_file could not write there; leaves nothing behind.
void check_writable(const std::string& path);

}  // namespace attncheck::properties
