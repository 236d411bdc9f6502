#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_SPARSE_RULES_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_SPARSE_RULES_H

#include "impl/operators/flash_attention/shapes.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// What sparse_mode demands of tokens, prefix and lengths (with a mask only), then what the bias
/// demands of the mode and the lengths (contract.md, decision 8; flash_attention.md 5.4).
///
/// Expects  a call whose shapes, length arrays and optional tensors are legal.
MaybeRejection check_sparse_rules(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_SPARSE_RULES_H
