// A folder for what the processes of one run write, removed when the run ends.
#pragma once

#include <string>

namespace attncheck::properties {

/// Of this process or of the one that it is a copy of, made at the first call below TMPDIR. The
/// process that made it removes it at its end. Throws LoadError.
const std::string& private_folder();

/// The same; empty when none was made.
const std::string& private_folder_if_made();

/// With everything in it, whatever its mode.
void remove_folder(const std::string& folder);

}  // namespace attncheck::properties
