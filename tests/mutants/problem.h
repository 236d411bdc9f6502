// A validated call of either operator, and the ruling on calls that are not valid.
//
// Legend: T tokens, N heads, D head dim, C blocks, l block size, d stride. X input, W weight, Y
// output, dY output_grad, dX input_grad, dW weight_grad. s_b length of sequence b.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "storage.h"

namespace attncheck::mutants {

/// A strided view of up to three dimensions; a missing third one has extent 1.
struct View {
    std::uint16_t* data = nullptr;
    std::int64_t shape[3]{1, 1, 1}, stride[3]{0, 0, 0};

    std::uint16_t* at(std::int64_t i, std::int64_t j, std::int64_t k = 0) const {
        return data + i * stride[0] + j * stride[1] + k * stride[2];
    }
    std::int64_t elements() const { return shape[0] * shape[1] * shape[2]; }
    /// One past the element with the highest address.
    std::uint16_t* end() const;
    /// As if the tensor were contiguous.
    void forget_strides();
};

View view_of(const attncheck_tensor& tensor);

struct Problem {
    Half type = Half::fp16;
    std::int64_t tokens = 0, heads = 0, head_dim = 0, blocks = 0, block = 0, stride = 0;
    std::vector<std::int64_t> ends;  ///< cumulative lengths
    bool is_gradient = false;
    View x, w, y;  ///< y: Y in the forward, dY in the gradient
    View dx, dw;   ///< gradient only
};

/// floor((s - l) / d) + 1, and 0 for s < l.
inline std::int64_t blocks_of(std::int64_t length, std::int64_t block, std::int64_t stride) {
    return length < block ? 0 : (length - block) / stride + 1;
}

/// ATTNCHECK_OK and `problem` filled in, or the status of the first constraint that is broken.
/// Order: null pointers, layout, ranks, dtypes, attribute ranges, shape relations, length array,
/// extents that depend on the blocks.
int accept(const attncheck_nsa_compress_args* args, Problem& problem);
int accept(const attncheck_nsa_compress_grad_args* args, Problem& problem);

}  // namespace attncheck::mutants
