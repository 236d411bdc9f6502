#ifndef ATTNCHECK_IMPL_REJECTION_H
#define ATTNCHECK_IMPL_REJECTION_H

#include <optional>
#include <string>

namespace attncheck::impl {

/// Why a call is refused. `message` is "<parameter> is <value>; allowed: <range>".
struct Rejection {
    int status;             ///< ATTNCHECK_ERR_NULLPTR (161001) or ATTNCHECK_ERR_INVALID (161002)
    std::string parameter;  ///< the field of the argument struct, "args" for the struct itself
    std::string message;
};

using MaybeRejection = std::optional<Rejection>;

/// Message of the last rejection on this thread, "" before the first; a later success does not
/// clear it.
const std::string& last_error_message();
void set_last_error_message(std::string message);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_REJECTION_H
