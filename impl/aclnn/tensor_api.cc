#include <algorithm>
#include <limits>
#include <new>

#include "impl/aclnn/object_tables.h"

namespace attncheck::aclnn {
namespace {

/// Row-major strides in elements. A product that leaves int64 stays at the largest one: the
/// operators refuse such shapes.
std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& dims) {
    std::vector<std::int64_t> strides(dims.size());
    std::int64_t stride = 1;
    for (std::size_t axis = dims.size(); axis-- > 0;) {
        strides[axis] = stride;
        if (__builtin_mul_overflow(stride, dims[axis], &stride))
            stride = std::numeric_limits<std::int64_t>::max();
    }
    return strides;
}

aclnnStatus get_list(const char* api, const aclTensor* tensor, std::int64_t** values,
                     std::uint64_t* count, std::vector<std::int64_t> aclTensor::* member) {
    if (!values || !count) return null_argument(api);
    std::vector<std::int64_t> list;
    const aclnnStatus status =
        get(api, "tensor", tensor, &list, [&](const aclTensor& object) { return object.*member; });
    if (status != kSuccess) return status;
    auto* array = new (std::nothrow) std::int64_t[list.size()];
    if (!array) return fail(kInternal, std::string(api) + ": out of memory");
    std::copy(list.begin(), list.end(), array);
    *values = array;
    *count = list.size();
    return kSuccess;
}

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
    const char* missing = !viewDims && viewDimsNum > 0         ? "viewDims"
                          : !storageDims && storageDimsNum > 0 ? "storageDims"
                                                               : nullptr;
    if (missing) {
        set_error(std::string("aclCreateTensor: ") + missing +
                  " is null; allowed: null only with a count of 0");
        return nullptr;
    }
    return created("aclCreateTensor", [&] {
        aclTensor tensor{dataType,  format, copied(viewDims, viewDimsNum),
                         {},        offset, copied(storageDims, storageDimsNum),
                         tensorData};
        tensor.strides = stride ? copied(stride, viewDimsNum) : row_major_strides(tensor.view_dims);
        return table<aclTensor>().add(std::move(tensor));
    });
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
    return destroy("aclDestroyTensor", "tensor", tensor);
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
    return get_list("aclGetViewShape", tensor, viewDims, viewDimsNum, &aclTensor::view_dims);
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                              uint64_t* stridesNum) {
    return get_list("aclGetViewStrides", tensor, stridesValue, stridesNum, &aclTensor::strides);
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                               uint64_t* storageDimsNum) {
    return get_list("aclGetStorageShape", tensor, storageDims, storageDimsNum,
                    &aclTensor::storage_dims);
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
    return get("aclGetViewOffset", "tensor", tensor, offset,
               [](const aclTensor& object) { return object.offset; });
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
    return get("aclGetFormat", "tensor", tensor, format,
               [](const aclTensor& object) { return object.format; });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
    return get("aclGetDataType", "tensor", tensor, dataType,
               [](const aclTensor& object) { return object.data_type; });
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
    return get("aclGetRawTensorAddr", "tensor", tensor, addr,
               [](const aclTensor& object) { return object.data; });
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
    if (!tensor) return null_argument("aclSetRawTensorAddr");
    const bool alive =
        table<aclTensor>().update(tensor, [addr](aclTensor& object) { object.data = addr; });
    return alive ? kSuccess : not_alive("aclSetRawTensorAddr", "tensor", tensor);
}

}  // extern "C"
