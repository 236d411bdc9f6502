#ifndef ATTNCHECK_IMPL_VALIDATED_ENTRY_POINTS_H
#define ATTNCHECK_IMPL_VALIDATED_ENTRY_POINTS_H

#include <span>
#include <string_view>

#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// An operator of this library without the type of its argument struct, which `args` points to.
struct EntryPoint {
    std::string_view name;  ///< without the prefix "attncheck_"
    int (*enter)(const void* args);
    MaybeRejection (*validate)(const void* args);
};

/// All operators of candidate.h, with their validators.
std::span<const EntryPoint> entry_points();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_VALIDATED_ENTRY_POINTS_H
