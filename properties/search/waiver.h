// Waiver files: one deviation a line, "OPERATOR PROPERTY LABELS REASON", '#' starts a comment.
#pragma once

#include <string>
#include <vector>

#include "properties/search/engine.h"

namespace attncheck::properties {

/// Throws std::runtime_error naming the file, the line and what is wrong with it.
std::vector<Waiver> read_waivers(const std::string& path);

}  // namespace attncheck::properties
