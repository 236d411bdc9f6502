#ifndef ATTNCHECK_IMPL_NSA_MODULE_ARRAYS_H
#define ATTNCHECK_IMPL_NSA_MODULE_ARRAYS_H

#include <attncheck/nsa_module.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "impl/kernels/half_formats.h"

/// Memory of the NSA module: its packed arrays, and the rows of a caller's strided tensors.
namespace attncheck::impl::module {

inline std::size_t size_of_dtype(std::int32_t dtype) {
    switch (dtype) {
        case ATTNCHECK_FLOAT16:
        case ATTNCHECK_BFLOAT16:
            return 2;
        case ATTNCHECK_BOOL:
        case ATTNCHECK_UINT8:
            return 1;
        default:
            return 4;
    }
}

/// A dense row-major array that starts as zeros; no element: the tensor is absent.
class Array {
public:
    Array() = default;
    Array(std::int32_t dtype, std::vector<std::int64_t> shape)
        : dtype_(dtype), shape_(std::move(shape)) {
        std::size_t count = 1;
        for (const std::int64_t extent : shape_) count *= static_cast<std::size_t>(extent);
        // One element more, so that an array without elements is present.
        bytes_.resize((count + 1) * size_of_dtype(dtype));
    }

    attncheck_tensor tensor() const {
        attncheck_tensor view{};
        if (bytes_.empty()) return view;
        view.data = const_cast<std::byte*>(bytes_.data());  // the interface has no const tensors
        view.dtype = dtype_;
        view.rank = static_cast<std::int32_t>(shape_.size());
        std::int64_t pitch = 1;
        for (std::size_t dim = shape_.size(); dim-- > 0;) {
            view.shape[dim] = shape_[dim];
            view.strides[dim] = pitch;
            pitch *= shape_[dim];
        }
        return view;
    }
    template <class T>
    T* data() {
        return reinterpret_cast<T*>(bytes_.data());
    }
    template <class T>
    const T* data() const {
        return reinterpret_cast<const T*>(bytes_.data());
    }

private:
    std::int32_t dtype_ = 0;
    std::vector<std::int64_t> shape_;
    std::vector<std::byte> bytes_;
};

/// Elements of a rank-3 tensor by index, whatever its strides. Half formats widen exactly and are
/// written with one rounding of an fp32 number, ties to even.
class Elements {
public:
    explicit Elements(const attncheck_tensor& tensor)
        : tensor_(tensor),
          format_(tensor.dtype == ATTNCHECK_FLOAT16 ? HalfFormat::kFp16 : HalfFormat::kBf16) {}

    float get(std::int64_t i, std::int64_t j, std::int64_t k) const {
        return tensor_.dtype == ATTNCHECK_FLOAT32
                   ? static_cast<const float*>(tensor_.data)[offset(i, j, k)]
                   : widen(format_,
                           static_cast<const std::uint16_t*>(tensor_.data)[offset(i, j, k)]);
    }
    void set(std::int64_t i, std::int64_t j, std::int64_t k, double value) const {
        const float narrowed = static_cast<float>(value);
        if (tensor_.dtype == ATTNCHECK_FLOAT32)
            static_cast<float*>(tensor_.data)[offset(i, j, k)] = narrowed;
        else
            static_cast<std::uint16_t*>(tensor_.data)[offset(i, j, k)] = narrow(format_, narrowed);
    }
    void clear() const {
        for (std::int64_t i = 0; i < extent(0); ++i)
            for (std::int64_t j = 0; j < extent(1); ++j)
                for (std::int64_t k = 0; k < extent(2); ++k) set(i, j, k, 0);
    }
    std::int64_t extent(int dim) const { return tensor_.shape[dim]; }
    bool present() const { return tensor_.data != nullptr; }

private:
    std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const {
        return i * tensor_.strides[0] + j * tensor_.strides[1] + k * tensor_.strides[2];
    }

    attncheck_tensor tensor_;
    HalfFormat format_;
};

}  // namespace attncheck::impl::module

#endif  // ATTNCHECK_IMPL_NSA_MODULE_ARRAYS_H
