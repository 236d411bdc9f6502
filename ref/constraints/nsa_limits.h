// Limits that the documents of several NSA operators have in common (nsa.md 2 to 4).
#pragma once

#include <cstdint>

namespace attncheck::ref {

constexpr std::int64_t kGranule = 16;  ///< compressed dims, blocks and strides are multiples
constexpr std::int64_t kMaxHeads = 128;
constexpr std::int64_t kMaxBlock = 128, kMaxBlockCount = 32;

}  // namespace attncheck::ref
