#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_VALIDATE_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_VALIDATE_H

#include <optional>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// The documented constraints of both directions (contract.md, decisions 4, 8 to 11).
///
/// Order   absent arguments (161001), then layouts, ranks, dtypes, attributes, shapes of the
/// inputs,
///         length arrays, optional tensors (ropes, bias, drop_mask, padding_mask, atten_mask),
///         rules of the sparse mode and what they demand of the bias, shapes of the outputs. The
///         first failure decides. An optional argument that the others make necessary is absent
///         (161001) where its turn comes.
/// Reads   the struct, the strings, the host arrays and the environment variable ATTNCHECK_PROFILE
///         (fp8 is legal in the gradient under "ascend950"); no tensor's elements. Any bit pattern
///         in the integers is safe.
/// Returns nothing for a legal call. Strides are the caller's business and not checked.
std::optional<Rejection> validate_flash_attention_score(
    const attncheck_flash_attention_score_args* args);
std::optional<Rejection> validate_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_VALIDATE_H
