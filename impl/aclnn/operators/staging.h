#ifndef ATTNCHECK_IMPL_ACLNN_OPERATORS_STAGING_H
#define ATTNCHECK_IMPL_ACLNN_OPERATORS_STAGING_H

#include <cstdint>

#include "attncheck/candidate.h"

/// Copies of tensors in the caller's workspace.
///
/// A tensor whose last dimension is contiguous is used where it lies. Every other one is packed
/// row-major into the workspace before the operator runs, or unpacked from it afterwards, so that
/// inner loops always read and write neighbours; this is all that operators use the workspace for.
namespace attncheck::aclnn {

/// Bytes of the packed copy rounded up to kStagingAlignment; 0 when the tensor is used in place.
/// Also 0 for a view that repeats elements so often that the copy would not fit into int64.
std::uint64_t staged_bytes(const attncheck_tensor& tensor);

/// `tensor` as it lies packed at `address`.
attncheck_tensor packed_at(void* address, const attncheck_tensor& tensor);

/// Copies the elements of `from` to those of `to`; both have the same shape and dtype.
void copy_elements(const attncheck_tensor& from, const attncheck_tensor& to);

/// A cache line, and what the vendor asks of operators' addresses (32 bytes) twice.
inline constexpr std::uint64_t kStagingAlignment = 64;

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OPERATORS_STAGING_H
