// What the example programs share: a device, and buffers with a descriptor. C++11.
#ifndef ATTNCHECK_TESTS_ACLNN_EXAMPLES_EXAMPLE_H
#define ATTNCHECK_TESTS_ACLNN_EXAMPLES_EXAMPLE_H

#include <cstdint>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

#define CHECK(call)                                      \
    do {                                                 \
        const int status = (call);                       \
        if (status != ACL_SUCCESS) {                     \
            std::printf("%s gives %d\n", #call, status); \
            return status;                               \
        }                                                \
    } while (0)

namespace example {

typedef std::vector<int64_t> Shape;

struct Device {
    aclrtContext context;
    aclrtStream stream;

    int Open() {
        CHECK(aclInit(nullptr));
        CHECK(aclrtSetDevice(0));
        CHECK(aclrtCreateContext(&context, 0));
        CHECK(aclrtSetCurrentContext(context));
        CHECK(aclrtCreateStream(&stream));
        return 0;
    }
    int Close() {
        CHECK(aclrtDestroyStream(stream));
        CHECK(aclrtDestroyContext(context));
        CHECK(aclrtResetDevice(0));
        CHECK(aclFinalize());
        return 0;
    }
};

inline size_t CountOf(const Shape& shape) {
    size_t count = 1;
    for (size_t i = 0; i < shape.size(); ++i) count *= static_cast<size_t>(shape[i]);
    return count;
}

// Memory on the device and its descriptor. T is the type on the host: when it is wider than `type`,
// the tensor covers the first part of the memory only.
struct Buffer {
    void* address;
    aclTensor* tensor;

    template <class T>
    int Upload(const std::vector<T>& data, const Shape& shape, aclDataType type,
               aclFormat format = ACL_FORMAT_ND, bool own_strides = true) {
        const size_t bytes = data.size() * sizeof(T);
        CHECK(aclrtMalloc(&address, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemcpy(address, bytes, data.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        Shape strides(shape.size(), 1);
        for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
        tensor = aclCreateTensor(shape.data(), shape.size(), type,
                                 own_strides ? strides.data() : nullptr, 0, format, shape.data(),
                                 shape.size(), address);
        return tensor == nullptr ? 1 : 0;
    }
    template <class T>
    int Fill(T value, const Shape& shape, aclDataType type, aclFormat format = ACL_FORMAT_ND) {
        return Upload(std::vector<T>(CountOf(shape), value), shape, type, format);
    }
    // Reads `count` elements of the host type T, which may reach behind the tensor.
    template <class T>
    int Download(std::vector<T>& data, size_t count) const {
        data.assign(count, T());
        return aclrtMemcpy(data.data(), count * sizeof(T), address, count * sizeof(T),
                           ACL_MEMCPY_DEVICE_TO_HOST);
    }
    int Free() {
        CHECK(aclDestroyTensor(tensor));
        CHECK(aclrtFree(address));
        return 0;
    }
};

inline int PrintFloats(const Buffer& buffer, size_t count) {
    std::vector<float> data;
    CHECK(buffer.Download(data, count));
    for (size_t i = 0; i < count; ++i) std::printf("mean result[%zu] is: %f\n", i, data[i]);
    return 0;
}

// Both phases of an operator, from the result of the first to the end of the work.
typedef aclnnStatus (*SecondPhase)(void*, uint64_t, aclOpExecutor*, aclrtStream);
inline int Finish(SecondPhase phase, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) {
    void* workspace = nullptr;
    if (bytes > 0) CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(phase(workspace, bytes, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (bytes > 0) CHECK(aclrtFree(workspace));
    return 0;
}

}  // namespace example

#endif  // ATTNCHECK_TESTS_ACLNN_EXAMPLES_EXAMPLE_H
