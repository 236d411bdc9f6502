// What several fields of a flash attention case say together: for those who draw, name and adapt
// cases.
#pragma once

#include <numeric>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {

inline std::int64_t total(const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

inline bool is_tnd(const Spec& spec) {
    return spec.numbers[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
}

inline FlashPse pse_of(const Spec& spec) { return static_cast<FlashPse>(spec.numbers[kFaPse]); }
inline bool is_compressed(const Spec& spec) { return flash_is_compressed(pse_of(spec)); }
inline bool has_slopes(const Spec& spec) { return pse_of(spec) >= FlashPse::slopes; }
inline bool has_external_bias(const Spec& spec) {
    return pse_of(spec) != FlashPse::absent && spec.numbers[kFaPseType] < 2;
}

}  // namespace attncheck::properties
