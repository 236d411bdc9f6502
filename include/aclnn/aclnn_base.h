/* What all two-phase operators share. <Api>GetWorkspaceSize checks its arguments and leaves an
 * executor; <Api> queues the executor's work on a stream and uses it up, whatever it returns. */
#ifndef ACLNN_ACLNN_BASE_H
#define ACLNN_ACLNN_BASE_H

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Optional; without effect. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char* configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

/* Between the phases: the executor survives second phases, until it is destroyed. Errors: 561103
 * null; 161002 not a live executor. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);

#ifdef __cplusplus
}
#endif

#endif /* ACLNN_ACLNN_BASE_H */
