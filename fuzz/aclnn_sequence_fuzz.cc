// Does every call of the two-phase interface return what is documented, whatever came before it? A
// program of up to 48 calls runs against a model (aclnn_program.h). A trap means another status,
// bytes that a copy did not carry, or memory that is still allocated after everything was destroyed
// (seen where the program has an address sanitizer, which counts it).
//
// The bytes have the format of call_bytes.h: the head's first byte holds settings, every change is
// one call: what, on which object, and how.
#include <cstdio>

#include "fuzz/aclnn_program.h"

using namespace attncheck::fuzz;

extern "C" __attribute__((weak)) std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

/// 0 without a sanitizer; malloc's own count holds on to freed memory.
std::size_t allocated_bytes() {
    return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
}

void run(const CallBytes& bytes) {
    AclnnProgram program(bytes);
    for (const Change& step : bytes.changes) program.run(step);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kMaxSteps = 48;
    const CallBytes bytes = CallBytes::parse(data, size, kMaxSteps);
    run(bytes);  // tables and pools keep what they grew to
    const std::size_t before = allocated_bytes();
    if (before == 0 || AclnnProgram::is_guarded(bytes)) return 0;
    run(bytes);
    const std::size_t after = allocated_bytes();
    if (after == before) return 0;
    std::fprintf(stderr, "%zu bytes are allocated after the program, %zu before\n", after, before);
    __builtin_trap();
}
