// Why a file cannot be a candidate, or lacks what its author thinks that it exports.
#pragma once

#include <string>

namespace attncheck::properties {

/// What the file itself shows: an object file, another architecture, no ELF file at all, or names
/// of the interface with C++ mangling; empty where nothing of this kind is wrong.
std::string load_hint(const std::string& path);

}  // namespace attncheck::properties
