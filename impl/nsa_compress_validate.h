#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H

#include <optional>
#include <string>

#include "attncheck/candidate.h"

namespace attncheck::impl {

/// Why a call is refused. `message` is "<parameter> is <value>; allowed: <range>".
struct Rejection {
    int status;             ///< ATTNCHECK_ERR_NULLPTR (161001) or ATTNCHECK_ERR_INVALID (161002)
    std::string parameter;  ///< the field of the argument struct, "args" for the struct itself
    std::string message;
};

/// The documented constraints of both operators (contract.md, decisions 4 and 5).
///
/// Order   absent arguments (161001), then with 161002: layout, ranks, dtypes, attributes, input
///         and weight shapes, the length array, the shapes of everything whose extent follows from
///         it. The first failure decides.
/// Reads   the struct, the layout string and the length array, never the data of a tensor. Any bit
///         pattern in the integers is safe: nothing is indexed by a rank and no product or sum of
///         extents can overflow.
/// Returns nothing for a legal call. Strides are the caller's business and not looked at.
std::optional<Rejection> validate_nsa_compress(const attncheck_nsa_compress_args* args);
std::optional<Rejection> validate_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args);

/// Message of the last rejection on this thread, "" before the first; a later success does not
/// clear it.
const std::string& last_error_message();
void set_last_error_message(std::string message);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_VALIDATE_H
