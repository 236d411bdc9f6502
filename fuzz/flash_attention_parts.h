// A legal call of FlashAttentionScore and its gradient, drawn from bytes: what
// flash_attention_call.cc changes afterwards.
#pragma once

#include <attncheck/candidate.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/bytes.h"

namespace attncheck::fuzz {

/// Every number a shape is made of; rows are T1 and T2 in TND.
enum FlashExtent { kB, kQueryRows, kKeyRows, kN1, kN2, kD, kDv, kDr, kExtents };
enum FlashArray { kQueryEnds, kKeyEnds, kPrefix, kQueryStart, kKeyStart, kArrays };

struct FlashLengths {
    std::int64_t query = 0, key = 0;
};

/// The gradient's arguments, of which the forward takes its own, and what they were made from.
struct FlashParts {
    attncheck_flash_attention_score_grad_args g{};
    bool gradient = false, ascend950 = false, packed = false;
    std::string layout;  ///< of the shapes, whatever becomes of input_layout
    std::array<std::int64_t, kExtents> x{};
    std::array<std::vector<std::int64_t>, kArrays> values;
    std::vector<FlashLengths> lengths;        ///< one outside TND
    std::int64_t query_len = 0, key_len = 0;  ///< the largest
    bool square = true, equal = true;         ///< in every sequence; in all of them
};

/// Head: direction with profile and layout, heads, dims, lengths, dtypes; then mask with mode,
/// tokens and prefix; then position bias, drop mask, ropes. All of it legal.
FlashParts draw_flash_attention(Bytes head);

std::array<attncheck_int_array*, kArrays> arrays_of(attncheck_flash_attention_score_grad_args& g);
std::array<attncheck_tensor*, 18> tensors_of(attncheck_flash_attention_score_grad_args& g);

/// Shapes of query, key, value, their gradients and ropes, and of the statistics, from the extents.
void set_shapes(FlashParts& parts);

/// Stands for a present array until its values are final.
inline constexpr std::int64_t kNoValue = -1;

}  // namespace attncheck::fuzz
