// `attncheck verify --judge`: for programs that write kernels and programs that reward them.
#pragma once

#include "properties/cli/command.h"

namespace attncheck::properties {

/// The exit status. Prints one JSON object, whatever the library does.
int judge_mode(Arguments arguments);

}  // namespace attncheck::properties
