// The headers in C++11, and the documented type of every function of the runtime and of
// descriptors: the C calling convention hides an interchanged parameter.
#include <type_traits>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "aclnn/opdev/fp16_t.h"

#define HAS_TYPE(function, ...) \
    static_assert(std::is_same<decltype(&function), __VA_ARGS__>::value, #function)

static_assert(std::is_same<aclrtStream, void*>::value && std::is_same<aclrtContext, void*>::value &&
                  std::is_same<aclrtEvent, void*>::value && std::is_same<aclError, int>::value &&
                  std::is_same<aclFloat16, uint16_t>::value &&
                  std::is_same<aclnnStatus, int32_t>::value,
              "types");

HAS_TYPE(aclInit, aclError (*)(const char*));
HAS_TYPE(aclFinalize, aclError (*)());
HAS_TYPE(aclFinalizeReference, aclError (*)(uint64_t*));
HAS_TYPE(aclGetRecentErrMsg, const char* (*)());
HAS_TYPE(aclFloat16ToFloat, float (*)(aclFloat16));
HAS_TYPE(aclFloatToFloat16, aclFloat16 (*)(float));

HAS_TYPE(aclrtGetDeviceCount, aclError (*)(uint32_t*));
HAS_TYPE(aclrtSetDevice, aclError (*)(int32_t));
HAS_TYPE(aclrtGetDevice, aclError (*)(int32_t*));
HAS_TYPE(aclrtResetDevice, aclError (*)(int32_t));
HAS_TYPE(aclrtSynchronizeDevice, aclError (*)());
HAS_TYPE(aclrtGetSocName, const char* (*)());
HAS_TYPE(aclrtCreateContext, aclError (*)(aclrtContext*, int32_t));
HAS_TYPE(aclrtDestroyContext, aclError (*)(aclrtContext));
HAS_TYPE(aclrtSetCurrentContext, aclError (*)(aclrtContext));
HAS_TYPE(aclrtGetCurrentContext, aclError (*)(aclrtContext*));
HAS_TYPE(aclrtCreateStream, aclError (*)(aclrtStream*));
HAS_TYPE(aclrtDestroyStream, aclError (*)(aclrtStream));
HAS_TYPE(aclrtSynchronizeStream, aclError (*)(aclrtStream));
HAS_TYPE(aclrtSynchronizeStreamWithTimeout, aclError (*)(aclrtStream, int32_t));
HAS_TYPE(aclrtMalloc, aclError (*)(void**, size_t, aclrtMemMallocPolicy));
HAS_TYPE(aclrtFree, aclError (*)(void*));
HAS_TYPE(aclrtMallocHost, aclError (*)(void**, size_t));
HAS_TYPE(aclrtFreeHost, aclError (*)(void*));
HAS_TYPE(aclrtMemcpy, aclError (*)(void*, size_t, const void*, size_t, aclrtMemcpyKind));
HAS_TYPE(aclrtMemcpyAsync,
         aclError (*)(void*, size_t, const void*, size_t, aclrtMemcpyKind, aclrtStream));
HAS_TYPE(aclrtMemset, aclError (*)(void*, size_t, int32_t, size_t));

HAS_TYPE(aclCreateTensor, aclTensor* (*)(const int64_t*, uint64_t, aclDataType, const int64_t*,
                                         int64_t, aclFormat, const int64_t*, uint64_t, void*));
HAS_TYPE(aclCreateScalar, aclScalar* (*)(void*, aclDataType));
HAS_TYPE(aclCreateIntArray, aclIntArray* (*)(const int64_t*, uint64_t));
HAS_TYPE(aclCreateFloatArray, aclFloatArray* (*)(const float*, uint64_t));
HAS_TYPE(aclCreateBoolArray, aclBoolArray* (*)(const bool*, uint64_t));
HAS_TYPE(aclCreateTensorList, aclTensorList* (*)(const aclTensor* const*, uint64_t));
HAS_TYPE(aclCreateScalarList, aclScalarList* (*)(const aclScalar* const*, uint64_t));
HAS_TYPE(aclDestroyTensor, aclnnStatus (*)(const aclTensor*));
HAS_TYPE(aclDestroyScalar, aclnnStatus (*)(const aclScalar*));
HAS_TYPE(aclDestroyIntArray, aclnnStatus (*)(const aclIntArray*));
HAS_TYPE(aclDestroyFloatArray, aclnnStatus (*)(const aclFloatArray*));
HAS_TYPE(aclDestroyBoolArray, aclnnStatus (*)(const aclBoolArray*));
HAS_TYPE(aclDestroyTensorList, aclnnStatus (*)(const aclTensorList*));
HAS_TYPE(aclDestroyScalarList, aclnnStatus (*)(const aclScalarList*));
HAS_TYPE(aclGetViewShape, aclnnStatus (*)(const aclTensor*, int64_t**, uint64_t*));
HAS_TYPE(aclGetViewStrides, aclnnStatus (*)(const aclTensor*, int64_t**, uint64_t*));
HAS_TYPE(aclGetStorageShape, aclnnStatus (*)(const aclTensor*, int64_t**, uint64_t*));
HAS_TYPE(aclGetViewOffset, aclnnStatus (*)(const aclTensor*, int64_t*));
HAS_TYPE(aclGetFormat, aclnnStatus (*)(const aclTensor*, aclFormat*));
HAS_TYPE(aclGetDataType, aclnnStatus (*)(const aclTensor*, aclDataType*));
HAS_TYPE(aclGetRawTensorAddr, aclnnStatus (*)(const aclTensor*, void**));
HAS_TYPE(aclSetRawTensorAddr, aclnnStatus (*)(aclTensor*, void*));
HAS_TYPE(aclGetIntArraySize, aclnnStatus (*)(const aclIntArray*, uint64_t*));
HAS_TYPE(aclGetFloatArraySize, aclnnStatus (*)(const aclFloatArray*, uint64_t*));
HAS_TYPE(aclGetBoolArraySize, aclnnStatus (*)(const aclBoolArray*, uint64_t*));
HAS_TYPE(aclGetTensorListSize, aclnnStatus (*)(const aclTensorList*, uint64_t*));
HAS_TYPE(aclGetScalarListSize, aclnnStatus (*)(const aclScalarList*, uint64_t*));

HAS_TYPE(aclnnInit, aclnnStatus (*)(const char*));
HAS_TYPE(aclnnFinalize, aclnnStatus (*)());
HAS_TYPE(aclSetAclOpExecutorRepeatable, aclnnStatus (*)(aclOpExecutor*));
HAS_TYPE(aclDestroyAclOpExecutor, aclnnStatus (*)(aclOpExecutor*));

// What programs rely on: enumerators qualified by their type, and a vector of halves from a double.
static_assert(aclDataType::ACL_FLOAT16 == ACL_FLOAT16 && aclFormat::ACL_FORMAT_ND == ACL_FORMAT_ND,
              "unscoped enumerations");

std::vector<op::fp16_t> halves_of_one(long count) { return std::vector<op::fp16_t>(count, 1.0); }
