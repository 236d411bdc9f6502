#ifndef ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_VALIDATE_H
#define ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_VALIDATE_H

#include <optional>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// The documented constraints of both operators (contract.md, decisions 4 and 6).
///
/// Order   absent arguments (161001), then with 161002: layout, ranks, dtypes, attributes, shape
///         relations of the inputs, actual_seq_q_len, actual_seq_kv_len, atten_mask, shapes of the
///         outputs, values of topk_indices. The first failure decides.
/// Reads   the struct, the layout string, the length arrays and, when everything else is legal, the
///         values of topk_indices through its strides; no other tensor. Any bit pattern in the
///         integers is safe: nothing is indexed by a rank, and what is multiplied is bounded first.
/// Returns nothing for a legal call. Strides are the caller's business and not checked.
std::optional<Rejection> validate_nsa_selected_attention(
    const attncheck_nsa_selected_attention_args* args);
std::optional<Rejection> validate_nsa_selected_attention_grad(
    const attncheck_nsa_selected_attention_grad_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_SELECTED_ATTENTION_VALIDATE_H
