#ifndef ATTNCHECK_IMPL_ATTENTION_DECODE_VALIDATE_H
#define ATTNCHECK_IMPL_ATTENTION_DECODE_VALIDATE_H

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// Absent arguments first, then ranks, dtypes, numbers, shapes and lengths. Reads the struct and
/// kv_length alone; any bit pattern in its integers is safe. Page numbers are not checked: the
/// block table lies in the memory of the device that computes.
MaybeRejection validate_attention_decode(const attncheck_attention_decode_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_DECODE_VALIDATE_H
