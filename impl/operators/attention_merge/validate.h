#ifndef ATTNCHECK_IMPL_ATTENTION_MERGE_VALIDATE_H
#define ATTNCHECK_IMPL_ATTENTION_MERGE_VALIDATE_H

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// Absent arguments first, then ranks, dtypes and shapes. Reads the struct alone; any bit pattern
/// in its integers is safe, for extents are compared and never multiplied.
MaybeRejection validate_attention_merge(const attncheck_attention_merge_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_MERGE_VALIDATE_H
