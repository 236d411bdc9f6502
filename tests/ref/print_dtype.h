#ifndef ATTNCHECK_TESTS_REF_PRINT_DTYPE_H
#define ATTNCHECK_TESTS_REF_PRINT_DTYPE_H

#include <ostream>

#include "ref/numbers/dtype.h"

namespace attncheck::ref {

/// The name instead of bytes in what googletest prints of a parameter.
inline void PrintTo(Dtype dtype, std::ostream* to) { *to << dtype_name(dtype); }

}  // namespace attncheck::ref

#endif  // ATTNCHECK_TESTS_REF_PRINT_DTYPE_H
