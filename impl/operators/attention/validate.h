#ifndef ATTNCHECK_IMPL_ATTENTION_VALIDATE_H
#define ATTNCHECK_IMPL_ATTENTION_VALIDATE_H

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// The constraints of candidate.h. Reads the struct and the host arrays, no tensor's elements; any
/// bit pattern in the integers is safe. Strides are the caller's business and not checked.
MaybeRejection validate_attention(const attncheck_attention_args* args);
MaybeRejection validate_attention_grad(const attncheck_attention_grad_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_VALIDATE_H
