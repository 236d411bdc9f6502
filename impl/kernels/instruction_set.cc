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

bool is_available(const InstructionSet& set) {
    if (set.targets == kScalarTargets) return true;
    return (set.targets & hwy::SupportedTargets() & HWY_TARGETS) != 0 &&
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
