// Strided views of the caller's memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

/// A strided view of up to three dimensions; a missing one has extent 1.
template <class Element>
struct BasicView {
    Element* data = nullptr;
    std::int64_t shape[3]{1, 1, 1}, stride[3]{0, 0, 0};
    bool is_narrow = false;  ///< a defect: offsets are kept in 32 bits

    Element* at(std::int64_t i, std::int64_t j, std::int64_t k = 0) const {
        const std::int64_t offset = i * stride[0] + j * stride[1] + k * stride[2];
        return data + (is_narrow ? static_cast<std::int32_t>(offset) : offset);
    }
    std::int64_t elements() const { return shape[0] * shape[1] * shape[2]; }

    /// One past the element with the highest address.
    Element* end() const {
        Element* highest = data;
        for (int i = 0; i < 3; ++i)
            highest += std::max<std::int64_t>(0, (shape[i] - 1) * stride[i]);
        return highest + 1;
    }

    /// Defects: channels at a stride that is not positive taken for neighbours.
    void expect_positive_channels() {
        if (stride[2] <= 0) stride[2] = 1;
    }

    /// As if the tensor were contiguous.
    void forget_strides() {
        stride[2] = 1;
        stride[1] = shape[2];
        stride[0] = shape[1] * shape[2];
    }
};

using View = BasicView<std::uint16_t>;

template <class Element = std::uint16_t>
BasicView<Element> view_of(const attncheck_tensor& tensor) {
    BasicView<Element> view;
    view.data = static_cast<Element*>(tensor.data);
    std::copy_n(tensor.shape, std::min(tensor.rank, 3), view.shape);
    std::copy_n(tensor.strides, std::min(tensor.rank, 3), view.stride);
    return view;
}

}  // namespace attncheck::mutants
