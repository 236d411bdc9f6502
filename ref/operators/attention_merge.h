// AttentionMerge: attention over all keys from attention over parts of them (split keys, paged
// caches, rings of devices).
//
//   LSE = ln sum_p exp(lse_p)        o = sum_p exp(lse_p - LSE) o_p
//
// Source: Dao et al. 2023, Flash-Decoding; Ye et al. 2024, FlashInfer, section 2.2. A part with
// lse_p = -infinity has seen no key: it counts for nothing, whatever its o_p holds. With no other
// part LSE = -infinity and o = 0.
#pragma once

#include <cstdint>
#include <span>

#include "ref/bounds/error_bound.h"

namespace attncheck::ref {

/// Legend: P parts, R rows, H heads, Dv value dim.
struct MergeShape {
    std::int64_t parts = 0, rows = 0, heads = 0, value_dim = 0;
};

struct ExpectedMerge {
    ExpectedTensor output;  ///< [R,H,Dv]
    ExpectedTensor lse;     ///< [R,H]
};

/// Values and their bounds. `parts` [P,R,H,Dv], `lses` [P,R,H]; the type is that of the parts and of
/// the output. Of the rounding class acc, exp and ftz matter: nothing here is a matrix product, so
/// weights are not rounded to the type of the parts.
///
/// Rows with a NaN among the lses are NaN. Rows with lse_p = +infinity are not judged: the contract
/// gives them no meaning, and some kernels mark empty parts so.
/// Throws std::invalid_argument when a size does not fit the shape.
ExpectedMerge expected_attention_merge(const MergeShape& shape, const Precision& precision,
                                       std::span<const double> parts, std::span<const double> lses);

}  // namespace attncheck::ref
