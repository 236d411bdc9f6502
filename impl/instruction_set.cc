#include "impl/instruction_set.h"

#include <strings.h>

#include <cstdio>
#include <cstdlib>

#include "hwy/highway.h"

namespace attncheck::impl {
namespace {

struct NamedTarget {
    const char* name;
    std::int64_t targets;
};

constexpr std::int64_t kScalarTargets = HWY_SCALAR | HWY_EMU128;
constexpr NamedTarget kNamedTargets[] = {
    {"scalar", kScalarTargets}, {"ssse3", HWY_SSSE3}, {"sse4", HWY_SSE4},
    {"avx2", HWY_AVX2},         {"avx3", HWY_AVX3},   {"neon", HWY_NEON},
};
constexpr const char* kAllowedNames = "scalar, ssse3, sse4, avx2, avx3, neon";

std::int64_t choose_targets() {
    if (const char* forced = std::getenv("ATTNCHECK_FORCE_ISA");
        forced != nullptr && *forced != '\0') {
        if (const std::int64_t targets = find_targets(forced)) return targets;
        std::fprintf(stderr,
                     "ATTNCHECK_FORCE_ISA is \"%.32s\"; allowed: those of %s that this machine "
                     "has; ignored\n",
                     forced, kAllowedNames);
    }
    return hwy::SupportedTargets();
}

}  // namespace

std::int64_t find_targets(const char* isa) {
    for (const NamedTarget& named : kNamedTargets) {
        if (strcasecmp(isa, named.name) != 0) continue;
        if (named.targets == kScalarTargets) return kScalarTargets;
        return (named.targets & hwy::SupportedTargets() & HWY_TARGETS) != 0 ? named.targets : 0;
    }
    return 0;
}

std::int64_t default_targets() {
    static const std::int64_t targets = choose_targets();
    return targets;
}

}  // namespace attncheck::impl
