#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_VALIDATE_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_VALIDATE_H

#include <optional>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// The documented constraints of NsaCompressAttention (contract.md, decisions 4 and 7).
///
/// Order   absent arguments (161001), then with 161002: layout, ranks, dtypes, attributes, shape
///         relations of the inputs, actual_seq_q_len, actual_cmp_seq_kv_len,
///         actual_sel_seq_kv_len, atten_mask, topk_mask, shapes of the outputs. The first failure
///         decides.
/// Reads   the struct, the layout string and the length arrays; no tensor. Any bit pattern in the
///         integers is safe: nothing is indexed by a rank, and a product of extents that leaves
///         int64 is a rejection.
/// Returns nothing for a legal call. Strides are the caller's business and not checked.
std::optional<Rejection> validate_nsa_compress_attention(
    const attncheck_nsa_compress_attention_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_ATTENTION_VALIDATE_H
