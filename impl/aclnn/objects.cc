#include "impl/aclnn/objects.h"

#include "impl/aclnn/object_tables.h"

namespace attncheck::aclnn {

std::optional<aclTensor> find_tensor(const aclTensor* handle) {
    return table<aclTensor>().find(handle);
}

std::optional<aclIntArray> find_int_array(const aclIntArray* handle) {
    return table<aclIntArray>().find(handle);
}

std::size_t element_bytes(aclDataType type) {
    switch (type) {
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
        case ACL_HIFLOAT8:
        case ACL_FLOAT8_E5M2:
        case ACL_FLOAT8_E4M3FN:
        case ACL_FLOAT8_E8M0:
            return 1;
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
        case ACL_UINT16:
            return 2;
        case ACL_FLOAT:
        case ACL_INT32:
        case ACL_UINT32:
        case ACL_COMPLEX32:
            return 4;
        case ACL_INT64:
        case ACL_UINT64:
        case ACL_DOUBLE:
        case ACL_COMPLEX64:
            return 8;
        case ACL_COMPLEX128:
            return 16;
        default:
            return 0;
    }
}

aclnnStatus not_alive(const char* api, const char* parameter, const void* handle) {
    return fail(kInvalid, misuse(api, parameter, text_of(handle),
                                 "an object that was created and not destroyed"));
}

aclnnStatus null_argument(const char* api) {
    return fail(kNullPointer, misuse(api, "an argument", "null", "none that is"));
}

}  // namespace attncheck::aclnn
