/* The headers in C11, and a whole program that uses nothing but them: one copy to the device and
 * back. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

_Static_assert(ACL_DT_UNDEFINED == -1 && ACL_FLOAT == 0 && ACL_FLOAT16 == 1 && ACL_INT8 == 2 &&
                   ACL_INT32 == 3 && ACL_UINT8 == 4 && ACL_INT16 == 6 && ACL_UINT16 == 7 &&
                   ACL_UINT32 == 8 && ACL_INT64 == 9 && ACL_UINT64 == 10 && ACL_DOUBLE == 11 &&
                   ACL_BOOL == 12 && ACL_STRING == 13 && ACL_COMPLEX64 == 16 &&
                   ACL_COMPLEX128 == 17 && ACL_BF16 == 27 && ACL_INT4 == 29 && ACL_UINT1 == 30 &&
                   ACL_COMPLEX32 == 33 && ACL_HIFLOAT8 == 34 && ACL_FLOAT8_E5M2 == 35 &&
                   ACL_FLOAT8_E4M3FN == 36 && ACL_FLOAT8_E8M0 == 37 && ACL_FLOAT6_E3M2 == 38 &&
                   ACL_FLOAT6_E2M3 == 39 && ACL_FLOAT4_E2M1 == 40 && ACL_FLOAT4_E1M2 == 41,
               "aclDataType");
_Static_assert(ACL_FORMAT_UNDEFINED == -1 && ACL_FORMAT_NCHW == 0 && ACL_FORMAT_NHWC == 1 &&
                   ACL_FORMAT_ND == 2 && ACL_FORMAT_NC1HWC0 == 3 && ACL_FORMAT_FRACTAL_Z == 4 &&
                   ACL_FORMAT_NC1HWC0_C04 == 12 && ACL_FORMAT_HWCN == 16 &&
                   ACL_FORMAT_NDHWC == 27 && ACL_FORMAT_FRACTAL_NZ == 29 &&
                   ACL_FORMAT_NCDHW == 30 && ACL_FORMAT_NDC1HWC0 == 32 && ACL_FRACTAL_Z_3D == 33 &&
                   ACL_FORMAT_NC == 35 && ACL_FORMAT_NCL == 47 &&
                   ACL_FORMAT_FRACTAL_NZ_C0_16 == 50 && ACL_FORMAT_FRACTAL_NZ_C0_32 == 51 &&
                   ACL_FORMAT_FRACTAL_NZ_C0_2 == 52 && ACL_FORMAT_FRACTAL_NZ_C0_4 == 53 &&
                   ACL_FORMAT_FRACTAL_NZ_C0_8 == 54,
               "aclFormat");
_Static_assert(ACL_MEMCPY_HOST_TO_HOST == 0 && ACL_MEMCPY_HOST_TO_DEVICE == 1 &&
                   ACL_MEMCPY_DEVICE_TO_HOST == 2 && ACL_MEMCPY_DEVICE_TO_DEVICE == 3 &&
                   ACL_MEMCPY_DEFAULT == 4 && ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE == 5 &&
                   ACL_MEMCPY_INNER_DEVICE_TO_DEVICE == 6 && ACL_MEMCPY_INTER_DEVICE_TO_DEVICE == 7,
               "aclrtMemcpyKind");
_Static_assert(ACL_MEM_MALLOC_HUGE_FIRST == 0 && ACL_MEM_MALLOC_HUGE_ONLY == 1 &&
                   ACL_MEM_MALLOC_NORMAL_ONLY == 2 && ACL_MEM_MALLOC_HUGE_FIRST_P2P == 3 &&
                   ACL_MEM_MALLOC_HUGE_ONLY_P2P == 4 && ACL_MEM_MALLOC_NORMAL_ONLY_P2P == 5 &&
                   ACL_MEM_MALLOC_HUGE1G_ONLY == 6 && ACL_MEM_MALLOC_HUGE1G_ONLY_P2P == 7 &&
                   ACL_MEM_TYPE_LOW_BAND_WIDTH == 0x100 && ACL_MEM_TYPE_HIGH_BAND_WIDTH == 0x1000 &&
                   ACL_MEM_ACCESS_USER_SPACE_READONLY == 0x100000,
               "aclrtMemMallocPolicy");
_Static_assert(sizeof(aclDataType) == 4 && sizeof(aclFormat) == 4 && sizeof(aclrtMemcpyKind) == 4 &&
                   sizeof(aclrtMemMallocPolicy) == 4,
               "enumerations are ints");
_Static_assert(ACL_ERROR_RT_PARAM_INVALID == 107000 && ACL_ERROR_RT_INVALID_DEVICEID == 107001 &&
                   ACL_ERROR_RT_CONTEXT_NULL == 107002 && ACL_ERROR_RT_STREAM_CONTEXT == 107003 &&
                   ACL_ERROR_RT_INVALID_HANDLE == 107017 &&
                   ACL_ERROR_RT_MEMORY_ALLOCATION == 207001 &&
                   ACL_ERROR_RT_CONTEXT_RELEASE_ERROR == 507007 &&
                   ACL_ERROR_RT_AICORE_EXCEPTION == 507015 &&
                   ACL_ERROR_RT_AICPU_EXCEPTION == 507018 &&
                   ACL_ERROR_RT_STREAM_SYNC_TIMEOUT == 507046,
               "runtime codes");

#define REQUIRE(condition)                                         \
    do {                                                           \
        if (!(condition)) {                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                              \
        }                                                          \
    } while (0)

static int constants_have_their_values(void) {
    REQUIRE(ACL_ERROR_NONE == 0 && ACL_SUCCESS == 0 && ACL_ERROR_INVALID_PARAM == 100000);
    REQUIRE(ACL_ERROR_UNINITIALIZE == 100001 && ACL_ERROR_REPEAT_INITIALIZE == 100002);
    REQUIRE(ACL_ERROR_INVALID_FILE == 100003 && ACL_ERROR_PARSE_FILE == 100006);
    REQUIRE(ACL_ERROR_REPEAT_FINALIZE == 100037 && ACL_ERROR_BAD_ALLOC == 200000);
    REQUIRE(ACL_ERROR_API_NOT_SUPPORT == 200001 && ACL_ERROR_INVALID_DEVICE == 200002);
    REQUIRE(ACL_ERROR_INVALID_RESOURCE_HANDLE == 200005 && ACL_ERROR_INTERNAL_ERROR == 500000);
    REQUIRE(ACL_ERROR_FAILURE == 500001 && ACL_ERROR_RT_FAILURE == 500003);
    return 0;
}

int main(void) {
    char sent[] = "to the device and back", received[sizeof sent] = "";
    void* block = NULL;
    aclrtStream stream = NULL;
    const int64_t dims[1] = {sizeof sent};
    aclTensor* tensor;

    REQUIRE(constants_have_their_values() == 0);
    REQUIRE(aclFinalize() == 0); /* never initialised: not a repetition */
    REQUIRE(aclrtSynchronizeStream(NULL) == 107002);
    REQUIRE(aclInit(NULL) == 0);
    REQUIRE(aclrtSetDevice(0) == 0);
    REQUIRE(aclrtCreateStream(&stream) == 0);
    REQUIRE(aclrtMalloc(&block, sizeof sent, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    REQUIRE(aclrtMemcpyAsync(block, sizeof sent, sent, sizeof sent, ACL_MEMCPY_HOST_TO_DEVICE,
                             stream) == 0);
    REQUIRE(aclrtSynchronizeStream(stream) == 0);
    tensor = aclCreateTensor(dims, 1, ACL_INT8, NULL, 0, ACL_FORMAT_ND, dims, 1, block);
    REQUIRE(tensor != NULL);
    REQUIRE(aclDestroyTensor(tensor) == 0);
    REQUIRE(aclrtMemcpy(received, sizeof received, block, sizeof sent, ACL_MEMCPY_DEVICE_TO_HOST) ==
            0);
    REQUIRE(strcmp(received, sent) == 0);
    REQUIRE(aclrtFree(block) == 0);
    REQUIRE(aclrtDestroyStream(stream) == 0);
    REQUIRE(aclrtResetDevice(0) == 0);
    REQUIRE(aclFinalize() == 0);
    REQUIRE(aclFinalize() == 100037);
    puts("done");
    return 0;
}
