// A vendor's runtime that has no operators, and no device either if ATTNCHECK_TEST_DEFECT is set.
#include <cstdlib>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

extern "C" {

aclError aclInit(const char*) { return 0; }
const char* aclGetRecentErrMsg() { return "the driver is not loaded"; }
aclError aclrtSetDevice(int32_t) { return std::getenv("ATTNCHECK_TEST_DEFECT") ? 507899 : 0; }
aclError aclrtCreateStream(aclrtStream*) { return 0; }
aclError aclrtDestroyStream(aclrtStream) { return 0; }
aclError aclrtSynchronizeStream(aclrtStream) { return 0; }
aclError aclrtMalloc(void**, size_t, aclrtMemMallocPolicy) { return 207001; }
aclError aclrtFree(void*) { return 0; }
aclError aclrtMemcpy(void*, size_t, const void*, size_t, aclrtMemcpyKind) { return 0; }
aclTensor* aclCreateTensor(const int64_t*, uint64_t, aclDataType, const int64_t*, int64_t,
                           aclFormat, const int64_t*, uint64_t, void*) {
    return nullptr;
}
aclnnStatus aclDestroyTensor(const aclTensor*) { return 0; }
aclnnStatus aclSetRawTensorAddr(aclTensor*, void*) { return 0; }
aclIntArray* aclCreateIntArray(const int64_t*, uint64_t) { return nullptr; }
aclnnStatus aclDestroyIntArray(const aclIntArray*) { return 0; }

}  // extern "C"
