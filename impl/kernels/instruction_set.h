#ifndef ATTNCHECK_IMPL_INSTRUCTION_SET_H
#define ATTNCHECK_IMPL_INSTRUCTION_SET_H

#include <cstdint>
#include <optional>
#include <string>

/// Which instruction sets the kernels are compiled for, and which one runs.
///
/// A kernel file includes this before anything of Highway, whose headers read the two macros.
/// The scalar target is always compiled, so that it can be forced on any machine. Sizeless vectors
/// (SVE, RVV) cannot form register tiles; such machines use NEON or scalar.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

namespace attncheck::impl {

struct Bf16DotKernels;

/// Beyond Highway's targets: "avx512_bf16" is "avx512" and the bf16 dot product, "amx" that with
/// products on the matrix unit, "amx_emulated" the code of "amx" without the unit (a test; slow).
struct InstructionSet {
    const char* name;
    std::int64_t targets;  ///< Highway's bits; one of them is chosen
    /// Null where the set has no products of bf16 pairs; what it returns is null where the machine
    /// has none.
    const Bf16DotKernels* (*bf16_dot)();
};

/// By name, in any case: "scalar", "amx_emulated", "ssse3", "sse4", "avx2", "avx512",
/// "avx512_bf16", "amx", "neon"; nothing if not available here.
std::optional<InstructionSet> find_instruction_set(const char* name);

/// Names of those that this machine has, best last: "scalar, ssse3, sse4, avx2".
std::string available_instruction_sets();

/// The best of this machine or the one that ATTNCHECK_FORCE_ISA names (read once).
/// Throws  std::runtime_error, at every call, if that is unknown or not available here.
const InstructionSet& default_instruction_set();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_INSTRUCTION_SET_H
