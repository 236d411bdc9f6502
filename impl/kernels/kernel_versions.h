// The versions of a kernel table, one for each instruction set, and the choice among them.
//
// A kernel file includes this after Highway. Highway's own choice belongs to the whole process, may be in use elsewhere,
// and needs its library: loading that takes 5 ms. Its headers are enough for this one.
#ifndef ATTNCHECK_IMPL_KERNEL_VERSIONS_H
#define ATTNCHECK_IMPL_KERNEL_VERSIONS_H

#include "hwy/highway.h"
#include "impl/kernels/instruction_set.h"

#if HWY_IDE || (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
/// Defines versions_of_NAME(set), which returns what NAME() returns, compiled for the set.
#define ATTNCHECK_VERSIONS(NAME) \
    auto versions_of_##NAME(const InstructionSet&) { return HWY_STATIC_DISPATCH(NAME)(); }
#else
#define ATTNCHECK_VERSIONS(NAME)                                                               \
    auto versions_of_##NAME(const InstructionSet& set) {                                       \
        using Version = decltype(&HWY_STATIC_DISPATCH(NAME));                                  \
        static constexpr Version versions[HWY_MAX_DYNAMIC_TARGETS + 2] = {                     \
            nullptr, HWY_CHOOSE_TARGET_LIST(NAME), HWY_CHOOSE_FALLBACK(NAME)};                 \
        hwy::ChosenTarget choice;                                                              \
        choice.Update(set.targets);                                                            \
        return versions[choice.GetIndex()]();                                                  \
    }
#endif

#endif  // ATTNCHECK_IMPL_KERNEL_VERSIONS_H
