// The text of emitted programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace attncheck::properties {

/// NumPy; with `torch` the kernel gets and returns tensors of torch. At most 60 lines.
std::string emitted_python(const nlohmann::ordered_json& made, bool torch);

}  // namespace attncheck::properties
