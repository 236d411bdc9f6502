#ifndef ATTNCHECK_IMPL_ACLNN_SETTINGS_H
#define ATTNCHECK_IMPL_ACLNN_SETTINGS_H

#include <cstdint>

/// Environment switches, read each time they are asked for; acl_rt.h documents them.
namespace attncheck::aclnn {

bool synchronous_streams();             ///< ATTNCHECK_ACL_SYNC
bool guarded_memory();                  ///< ATTNCHECK_ACL_DEBUG
std::uint64_t least_workspace_bytes();  ///< ATTNCHECK_ACL_WORKSPACE, 0 when unset or not a number

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_SETTINGS_H
