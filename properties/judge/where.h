// Where an output is wrong, as a small picture: sequence by head, in tiles of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/spec.h"
#include "properties/judge/compare.h"

namespace attncheck::properties {

/// Lines behind a message, an ErrorMap of the worst errors in units of their bounds.
/// Empty where one cell would have it all, or where a row of memory holds several heads. Rows
/// without any error count are 0; what is no number, or must be exact and is not, is "inf".
std::string map_of_errors(const Spec& spec, const Tensor& tensor, const ref::ExpectedTensor& expected,
                          const std::vector<std::uint32_t>& got);

}  // namespace attncheck::properties
