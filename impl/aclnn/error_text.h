#ifndef ATTNCHECK_IMPL_ACLNN_ERROR_TEXT_H
#define ATTNCHECK_IMPL_ACLNN_ERROR_TEXT_H

#include <string>

namespace attncheck::aclnn {

/// Adds a record to the calling thread's message, which aclGetRecentErrMsg returns, newest record
/// first. Text: "<api>: <parameter> is <value>; allowed: <range>". Never throws.
void set_error(std::string message) noexcept;

/// set_error(message), then status: for `return fail(..)`.
int fail(int status, std::string message) noexcept;

/// "aclrtFree: devPtr is null; allowed: the start of a live block".
std::string misuse(const char* api, const char* parameter, const std::string& value,
                   const char* allowed);

std::string text_of(const void* handle);  ///< "null" or "0x7f12.."

/// Takes the calling thread's message, records joined by newlines; "" when there is none. Moves
/// the text of a failure from the worker thread to the thread that synchronises.
std::string take_error() noexcept;

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_ERROR_TEXT_H
