#ifndef ATTNCHECK_IMPL_INSTRUCTION_SET_H
#define ATTNCHECK_IMPL_INSTRUCTION_SET_H

#include <cstdint>

/// Which instruction sets the kernels are compiled for, and which one runs.
///
/// A kernel file includes this before anything of Highway, whose headers read the two macros.
/// The scalar target is always compiled, so that it can be forced on any machine. Sizeless vectors
/// (SVE, RVV) cannot form register tiles; such machines use NEON or scalar.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

namespace attncheck::impl {

/// Highway's target bits for a name, in any case: "scalar", "ssse3", "sse4", "avx2", "avx3",
/// "neon"; 0 if not available here.
std::int64_t find_targets(const char* isa);

/// All target bits of this machine, or those of ATTNCHECK_FORCE_ISA (read once; a name that is
/// unknown or not supported here is reported on stderr and ignored).
std::int64_t default_targets();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_INSTRUCTION_SET_H
