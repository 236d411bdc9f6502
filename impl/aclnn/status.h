#ifndef ATTNCHECK_IMPL_ACLNN_STATUS_H
#define ATTNCHECK_IMPL_ACLNN_STATUS_H

#include "aclnn/acl_meta.h"

/// Values of aclnnStatus; the public headers name none of them.
namespace attncheck::aclnn {

inline constexpr aclnnStatus kSuccess = 0;
inline constexpr aclnnStatus kNullPointer = 161001;
inline constexpr aclnnStatus kInvalid = 161002;
inline constexpr aclnnStatus kRuntimeFailed = 361001;  ///< no stream or context to run on
inline constexpr aclnnStatus kInternal = 561000;
inline constexpr aclnnStatus kInternalNull = 561103;

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_STATUS_H
