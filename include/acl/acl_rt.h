/* Devices, contexts, streams and memory. There is one device, 0, made of host memory and threads.
 *
 * Device, context and error text belong to the calling thread. Work that is submitted to a stream
 * runs in order on the stream's own thread; streams are not ordered among each other. All functions
 * may be called from any thread.
 *
 * Environment, read when it is needed, "" and "0" meaning off:
 *   ATTNCHECK_ACL_SYNC=1       streams made from now on run work within the call that submits it
 *   ATTNCHECK_ACL_DEBUG=1      device memory allocated from now on is filled with 0xFF, and
 * touching it from the host outside this library is a fault ATTNCHECK_ACL_WORKSPACE=n  first phases
 * ask for at least n bytes of workspace */
#ifndef ACL_ACL_RT_H
#define ACL_ACL_RT_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_DEFAULT = 4, /* directions follow from the addresses */
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6, /* refused, as is the next */
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

/* Where memory should come from; without meaning here. */
typedef enum aclrtMemMallocPolicy {
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100,
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

/* Devices. aclrtSetDevice makes the device's default context current in this thread and counts; as
 * many calls of aclrtResetDevice release it, after all its work is done. What the program made on
 * the device and did not release stays until aclFinalize. Errors: 107001 no such device; 507007
 * reset of a device that is not set; 107002 no context. */
ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t* count);
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);
ACL_FUNC_VISIBILITY aclError aclrtGetDevice(int32_t* deviceId);
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDevice(void);
ACL_FUNC_VISIBILITY const char* aclrtGetSocName(void);

/* Contexts. A new one becomes current in this thread; destroying the current one leaves the thread
 * with the device's default context, or none. Destroying a context destroys its streams. Errors:
 * 100000 null; 107001 no such device; 107000 not a context to set; 107002 not a context to destroy,
 * or the default one, or none is current. */
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);
ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext* context);

/* Streams of the current context; a null stream is the context's default one. Synchronising waits
 * for all work submitted before and returns the first failure since the last time. Errors: 100000
 * null where a stream is made or destroyed, a timeout (in ms; -1 is for ever) below -1; 107002 no
 * current context; 107003 stream of another context; 107017 not a stream; 507046 still busy when
 * the time was up. */
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream* stream);
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

/* Memory. Device blocks are aligned to 64 bytes and usable to their size rounded up to 32, plus 32.
 * Freeing waits for the work of all streams. Errors: 100000 null, or size 0; 107000 not the start
 * of a live block; 107002 no current context; 207001 no memory left. */
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_FUNC_VISIBILITY aclError aclrtFree(void* devPtr);
ACL_FUNC_VISIBILITY aclError aclrtMallocHost(void** hostPtr, size_t size);
ACL_FUNC_VISIBILITY aclError aclrtFreeHost(void* hostPtr);

/* Copies. aclrtMemcpy does not wait for streams; aclrtMemcpyAsync reads its source when its turn
 * comes. count 0 succeeds before anything is looked at. Errors: 100000 null, or a kind that is not
 * supported; 107000 count exceeds destMax or maxCount, an end runs past its block, a device end is
 * not in live device memory or a host end is; 107002 no context. */
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                                         aclrtMemcpyKind kind);
ACL_FUNC_VISIBILITY aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src,
                                              size_t count, aclrtMemcpyKind kind,
                                              aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value,
                                         size_t count);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_RT_H */
