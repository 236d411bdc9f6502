#include "impl/aclnn/operators/staging.h"

#include <algorithm>
#include <cstddef>

#include "impl/aclnn/objects.h"

namespace attncheck::aclnn {
namespace {

std::int64_t element_size(const attncheck_tensor& tensor) {
    return static_cast<std::int64_t>(element_bytes(static_cast<aclDataType>(tensor.dtype)));
}

// One row along the last dimension; strides in elements.
template <class Element>
void copy_row(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride,
              std::int64_t count) {
    const auto* source = static_cast<const Element*>(from);
    auto* target = static_cast<Element*>(to);
    for (std::int64_t i = 0; i < count; ++i) target[i * to_stride] = source[i * from_stride];
}

using CopyRow = void (*)(const void*, std::int64_t, void*, std::int64_t, std::int64_t);

CopyRow row_copier(std::int64_t size) {
    switch (size) {
        case 1:
            return copy_row<std::uint8_t>;
        case 2:
            return copy_row<std::uint16_t>;
        case 4:
            return copy_row<std::uint32_t>;
        default:
            return copy_row<std::uint64_t>;
    }
}

struct RowWalk {
    const attncheck_tensor &from, &to;
    std::int64_t size;
    CopyRow copy;

    void run(int dim, std::int64_t from_offset, std::int64_t to_offset) const {
        if (dim == from.rank - 1) {
            copy(static_cast<const std::byte*>(from.data) + from_offset * size, from.strides[dim],
                 static_cast<std::byte*>(to.data) + to_offset * size, to.strides[dim],
                 from.shape[dim]);
            return;
        }
        for (std::int64_t i = 0; i < from.shape[dim]; ++i) {
            run(dim + 1, from_offset + i * from.strides[dim], to_offset + i * to.strides[dim]);
        }
    }
};

}  // namespace

std::uint64_t staged_bytes(const attncheck_tensor& tensor) {
    if (tensor.data == nullptr || tensor.rank < 1) return 0;
    const int last = tensor.rank - 1;
    if (tensor.shape[last] <= 1 || tensor.strides[last] == 1) return 0;
    std::int64_t bytes = element_size(tensor);
    for (int dim = 0; dim < tensor.rank; ++dim) {
        if (__builtin_mul_overflow(bytes, tensor.shape[dim], &bytes)) return 0;
    }
    return (static_cast<std::uint64_t>(bytes) + kStagingAlignment - 1) / kStagingAlignment *
           kStagingAlignment;
}

attncheck_tensor packed_at(void* address, const attncheck_tensor& tensor) {
    attncheck_tensor packed = tensor;
    packed.data = address;
    std::int64_t stride = 1;
    for (int dim = tensor.rank - 1; dim >= 0; --dim) {
        packed.strides[dim] = stride;
        stride *= tensor.shape[dim];
    }
    return packed;
}

void copy_elements(const attncheck_tensor& from, const attncheck_tensor& to) {
    const std::int64_t size = element_size(from);
    RowWalk{from, to, size, row_copier(size)}.run(0, 0, 0);
}

}  // namespace attncheck::aclnn
