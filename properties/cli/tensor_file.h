// Arguments of a call in a file: .npz of NumPy, or .safetensors.
#pragma once

#include <string>

#include "properties/cli/judge_given.h"

namespace attncheck::properties {

struct TensorFile {
    std::string op;  ///< where the file names it as "op"; else empty
    GivenCall call;
};

/// Reads the arguments of an operator, each under its name. Numbers and texts are arrays without
/// extents in .npz and entries of "__metadata__" in .safetensors; host arrays are int64 with one
/// extent. `operator_named` is what the command line says, or empty. Throws UsageError (command.h)
/// naming the file, the entry, and what is allowed.
TensorFile read_tensor_file(const std::string& path, const std::string& operator_named);

}  // namespace attncheck::properties
