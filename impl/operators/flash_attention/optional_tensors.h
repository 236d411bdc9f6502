#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_OPTIONAL_TENSORS_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_OPTIONAL_TENSORS_H

#include "impl/operators/flash_attention/shapes.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// Presence, dtype and shape of ropes, bias, drop_mask, padding_mask and atten_mask, in this order
/// (contract.md, decisions 8 to 11). One that the other arguments make necessary and that is absent
/// is rejected with 161001.
///
/// Expects  a call whose required tensors, attributes and length arrays are legal.
MaybeRejection check_optional_tensors(const FlashCall& call, const FlashExtents& extents,
                                      const FlashLengths& lengths);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_OPTIONAL_TENSORS_H
