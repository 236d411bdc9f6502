// Arguments of calls as the tests of the constraints write them: dtypes by number, tensors and arrays in one line.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "ref/constraints/constraints.h"

namespace attncheck::ref {

inline constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int32_t kFp32 = 0, kFp16 = 1, kInt32 = 3, kUint8 = 4, kInt64 = 9, kBool = 12, kBf16 = 27, kE5m2 = 35,
                              kE4m3 = 36;

inline TensorArgument tensor(std::vector<std::int64_t> shape, std::int32_t dtype = kFp16) {
    const auto rank = static_cast<std::int32_t>(shape.size());
    return {true, dtype, rank, std::move(shape)};
}

inline ArrayArgument int_array(std::vector<std::int64_t> values) {
    const auto size = static_cast<std::int64_t>(values.size());
    return {true, size, std::move(values)};
}

}  // namespace attncheck::ref
