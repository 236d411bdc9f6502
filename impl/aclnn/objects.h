#ifndef ATTNCHECK_IMPL_ACLNN_OBJECTS_H
#define ATTNCHECK_IMPL_ACLNN_OBJECTS_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "aclnn/acl_meta.h"

/// What the descriptors of acl_meta.h hold. A handle is a ticket, not an address: programs get
/// values of type aclTensor* that point nowhere and are never given out twice, so a handle that
/// is unknown or destroyed is recognised without touching memory. Read one with the functions at
/// the end of this file.

struct aclTensor {
    aclDataType data_type;
    aclFormat format;
    std::vector<std::int64_t> view_dims;
    std::vector<std::int64_t> strides;  ///< in elements, one per view dimension
    std::int64_t offset;                ///< in elements, from data to element (0,..,0)
    std::vector<std::int64_t> storage_dims;
    void* data;  ///< start of the storage, not of the view; may be null
};

struct aclScalar {
    aclDataType data_type;
    std::vector<unsigned char> bytes;  ///< the value's storage
};

struct aclIntArray {
    std::vector<std::int64_t> values;
};

struct aclFloatArray {
    std::vector<float> values;
};

struct aclBoolArray {
    std::vector<bool> values;
};

struct aclTensorList {
    std::vector<const aclTensor*> members;
};

struct aclScalarList {
    std::vector<const aclScalar*> members;
};

namespace attncheck::aclnn {

/// Copies of the live object behind a handle, safe to keep whatever happens to the handle;
/// nothing for null, garbage and destroyed handles. Safe from any thread.
std::optional<aclTensor> find_tensor(const aclTensor* handle);
std::optional<aclIntArray> find_int_array(const aclIntArray* handle);

/// Size of one element in bytes; 0 for types without a whole number of bytes and unknown ones.
std::size_t element_bytes(aclDataType type);

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OBJECTS_H
