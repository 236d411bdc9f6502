#include "impl/kernels/lines_ahead.h"

namespace attncheck::impl {

LineRequests default_line_requests() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_is("amdfam19h")) return LineRequests::kTwice;  // Zen 3 and 4
#endif
    return LineRequests::kOnce;
}

}  // namespace attncheck::impl
