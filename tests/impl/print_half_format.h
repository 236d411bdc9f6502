#ifndef ATTNCHECK_TESTS_IMPL_PRINT_HALF_FORMAT_H
#define ATTNCHECK_TESTS_IMPL_PRINT_HALF_FORMAT_H

#include <ostream>

#include "impl/kernels/half_formats.h"

namespace attncheck::impl {

/// The name instead of bytes in what googletest prints of a parameter.
inline void PrintTo(HalfFormat format, std::ostream* to) {
    *to << (format == HalfFormat::kFp16 ? "fp16" : "bf16");
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_PRINT_HALF_FORMAT_H
