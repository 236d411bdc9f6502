#ifndef ATTNCHECK_IMPL_ACLNN_EXECUTOR_H
#define ATTNCHECK_IMPL_ACLNN_EXECUTOR_H

#include <cstdint>
#include <functional>
#include <string>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"
#include "impl/aclnn/error_text.h"  // set_error

namespace attncheck::aclnn {

/// What the first phase of an operator leaves for the second. `run` owns copies of everything it
/// needs (the descriptors may be gone when it runs); it is called on the stream's worker thread,
/// with device memory open to it, and may be called several times and concurrently when the
/// executor is repeatable. Non-zero: the operator failed while running; set_error inside `run`
/// gives the text.
struct Launch {
    std::string api;  ///< "aclnnNsaCompressGrad"
    std::uint64_t workspace_bytes;
    std::function<int(void* workspace)> run;
};

/// The last step of a first phase: stores the executor and the size of the workspace that the
/// second phase must bring (at least ATTNCHECK_ACL_WORKSPACE bytes, see settings.h).
/// Errors  161001 when an out-pointer is null; then, and on every failure, neither is written.
aclnnStatus make_executor(Launch launch, std::uint64_t* workspace_size, aclOpExecutor** executor);

/// The whole of a second phase: queues the executor's work on the stream (null: the default stream
/// of the current context). Uses the executor up, whatever is returned, unless it is repeatable.
/// A non-zero result of `run`, and 507015 for an exception, appears when the stream is
/// synchronised. Errors  161001 executor null, or workspace null although a size was asked for or
/// given;
///         161002 executor unknown, used up or of another operator, workspace smaller than asked
///         for or not in device memory; 361001 no current context, or not a stream of it.
aclnnStatus launch_executor(const char* api, void* workspace, std::uint64_t workspace_size,
                            aclOpExecutor* executor, aclrtStream stream);

/// Forgets executors that were never launched.
void release_executors();

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_EXECUTOR_H
