#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H

#include <optional>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// The documented constraints of both operators (contract.md, decisions 4 and 5).
///
/// Order   absent arguments (161001), then with 161002: layout, ranks, dtypes, attributes, input
///         and weight shapes, the length array, the shapes of everything whose extent follows from
///         it. The first failure decides.
/// Reads   the struct, the layout string and the length array, never the data of a tensor. Any bit
///         pattern in the integers is safe: nothing is indexed by a rank and no product or sum of
///         extents can overflow.
/// Returns nothing for a legal call. Strides are the caller's business and not checked.
std::optional<Rejection> validate_nsa_compress(const attncheck_nsa_compress_args* args);
std::optional<Rejection> validate_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H
