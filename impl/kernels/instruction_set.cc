#include "impl/kernels/instruction_set.h"

#include <strings.h>

#include <cstdlib>
#include <stdexcept>

#include "hwy/highway.h"
#include "impl/kernels/amx_kernels.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kScalarTargets = HWY_SCALAR | HWY_EMU128;
// Best last.
const InstructionSet kSets[] = {
    {"scalar", kScalarTargets, nullptr}, {"amx_emulated", HWY_AVX3, &emulated_amx_kernels},
    {"neon", HWY_NEON, nullptr},         {"ssse3", HWY_SSSE3, nullptr},
    {"sse4", HWY_SSE4, nullptr},         {"avx2", HWY_AVX2, nullptr},
    {"avx512", HWY_AVX3, nullptr},       {"avx512_bf16", HWY_AVX3, &bf16_dot_kernels},
    {"amx", HWY_AVX3, &amx_kernels},
};

/// What Highway's target needs of the processor and of the system. Highway's library, which would say it too, measures
/// its timer for 5 ms whenever a process loads it, and every worker is a process.
bool machine_has(std::int64_t target) {
#if HWY_ARCH_X86
    const bool ssse3 = __builtin_cpu_supports("ssse3");
    const bool sse4 = ssse3 && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
                      __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
    const bool avx2 = sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                      __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("f16c");
    const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
    switch (target) {
        case HWY_SSSE3: return ssse3;
        case HWY_SSE4: return sse4;
        case HWY_AVX2: return avx2;
        case HWY_AVX3: return avx3;
        default: return false;
    }
#else
    return target == HWY_NEON && HWY_ARCH_ARM;
#endif
}

bool is_available(const InstructionSet& set) {
    if (set.targets == kScalarTargets) return true;
    return (set.targets & HWY_TARGETS) != 0 && machine_has(set.targets) &&
           (set.bf16_dot == nullptr || set.bf16_dot() != nullptr);
}

std::optional<InstructionSet> choose() {
    if (const char* forced = std::getenv("ATTNCHECK_FORCE_ISA");
        forced != nullptr && *forced != '\0') {
        return find_instruction_set(forced);
    }
    const InstructionSet* best = &kSets[0];
    for (const InstructionSet& set : kSets) {
        if (is_available(set)) best = &set;
    }
    return *best;
}

}  // namespace

std::optional<InstructionSet> find_instruction_set(const char* name) {
    for (const InstructionSet& set : kSets) {
        if (strcasecmp(name, set.name) == 0 && is_available(set)) return set;
    }
    return std::nullopt;
}

std::string available_instruction_sets() {
    std::string names;
    for (const InstructionSet& set : kSets) {
        if (!is_available(set)) continue;
        if (!names.empty()) names += ", ";
        names += set.name;
    }
    return names;
}

const InstructionSet& default_instruction_set() {
    static const std::optional<InstructionSet> chosen = choose();
    if (!chosen) {
        throw std::runtime_error("ATTNCHECK_FORCE_ISA is \"" +
                                 std::string(std::getenv("ATTNCHECK_FORCE_ISA")).substr(0, 32) +
                                 "\"; this machine has " + available_instruction_sets());
    }
    return *chosen;
}

}  // namespace attncheck::impl
