/* Status codes of the runtime: 107xxx wrong use, 207xxx resources, 507xxx failures of work. */
#ifndef ACL_ERROR_CODES_RT_ERROR_CODES_H
#define ACL_ERROR_CODES_RT_ERROR_CODES_H

#define ACL_ERROR_RT_PARAM_INVALID 107000         /* a pointer, size or handle that cannot be */
#define ACL_ERROR_RT_INVALID_DEVICEID 107001      /* no device of that number */
#define ACL_ERROR_RT_CONTEXT_NULL 107002          /* no context, or not one that can be used so */
#define ACL_ERROR_RT_STREAM_CONTEXT 107003        /* the stream belongs to another context */
#define ACL_ERROR_RT_INVALID_HANDLE 107017        /* not a live stream */
#define ACL_ERROR_RT_MEMORY_ALLOCATION 207001     /* no memory left */
#define ACL_ERROR_RT_CONTEXT_RELEASE_ERROR 507007 /* the device is not set, or already reset */
#define ACL_ERROR_RT_AICORE_EXCEPTION 507015      /* an operator failed while it ran */
#define ACL_ERROR_RT_AICPU_EXCEPTION 507018       /* likewise, on the device's scalar cores */
#define ACL_ERROR_RT_STREAM_SYNC_TIMEOUT 507046   /* work was still pending when time was up */

#endif /* ACL_ERROR_CODES_RT_ERROR_CODES_H */
