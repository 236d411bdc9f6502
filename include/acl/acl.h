/* Start and end of the AscendCL runtime, and its error texts. */
#ifndef ACL_ACL_H
#define ACL_ACL_H

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* configPath: a JSON file, or NULL or "" for the defaults; its contents are checked and have no
 * effect. Errors: 100003 cannot be read; 100006 not JSON; 100002 already initialised (counted all
 * the same); 100000 already initialised with a different configuration. */
ACL_FUNC_VISIBILITY aclError aclInit(const char* configPath);

/* Ends everything, whatever the number of aclInit: waits for all work, then releases streams,
 * contexts, device memory and executors that are still alive. Error: 100037 the second time in a
 * row. */
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

/* Takes back one aclInit, and is aclFinalize for the last one. refCount (may be NULL) receives how
 * many are left. */
ACL_FUNC_VISIBILITY aclError aclFinalizeReference(uint64_t* refCount);

/* What went wrong in the calling thread since the last call, newest first, or NULL; valid until the
 * next call. */
ACL_FUNC_VISIBILITY const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_H */
