// A validated call of either operator, and the ruling on calls that are not valid.
//
// Legend: T tokens, N heads, D head dim, C blocks, l block size, d stride. X input, W weight, Y
// output, dY output_grad, dX input_grad, dW weight_grad. s_b length of sequence b.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "storage.h"
#include "view.h"

namespace attncheck::mutants {

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
