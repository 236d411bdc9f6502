// Oracle of NsaCompress and NsaCompressGrad: overlapping weighted pooling of tokens into blocks,
// in binary64.
//
//   Y[o_b + j, n, c] = sum_{r < block} X[a_b + j*stride + r, n, c] * W[r, n]
//   dX[t, n, c]      = sum over (b, j, r): a_b + j*stride + r = t  of W[r, n] * dY[o_b + j, n, c]
//   dW[r, n]         = sum_b sum_j sum_c dY[o_b + j, n, c] * X[a_b + j*stride + r, n, c]
//
// a_b first token of sequence b, o_b first output row of sequence b.
// Legend: T tokens, N heads, D head dim, C blocks.
// Source: aclnnNsaCompress and aclnnNsaCompressGrad documents; block count
// floor((s_b - block) / stride) + 1, 0 if s_b < block. Blocks never cross a sequence boundary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/bounds/error_bound.h"

namespace attncheck::ref {

struct CompressShape {
    std::vector<std::int64_t> seq_lengths;  ///< s_b, each >= 0
    std::int64_t total_tokens = 0;  ///< T >= sum of seq_lengths; no block covers a row beyond
    std::int64_t heads = 1, head_dim = 16, block = 16, stride = 16;

    std::int64_t blocks_of(std::int64_t length) const {
        return length < block ? 0 : (length - block) / stride + 1;
    }
    std::int64_t total_blocks() const;
};

/// Calls visit(output_row, first_token) for every block of every sequence, in output order.
template <class Visit>
void for_each_block(const CompressShape& shape, Visit&& visit) {
    std::int64_t first_token = 0, output_row = 0;
    for (const std::int64_t length : shape.seq_lengths) {
        for (std::int64_t j = 0; j < shape.blocks_of(length); ++j)
            visit(output_row++, first_token + j * shape.stride);
        first_token += length;
    }
}

/// The forward over any scalar with + and *: double, std::complex<double> or dual numbers, so that
/// it can be differentiated exactly. Shapes: input [T,N,D], weight [block,N], output [C,N,D], all
/// row-major.
template <class Scalar>
void nsa_compress(const CompressShape& shape, std::span<const Scalar> input,
                  std::span<const Scalar> weight, std::span<Scalar> output) {
    const std::int64_t row = shape.heads * shape.head_dim;
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        for (std::int64_t n = 0; n < shape.heads; ++n)
            for (std::int64_t c = 0; c < shape.head_dim; ++c) {
                Scalar sum{};
                for (std::int64_t r = 0; r < shape.block; ++r)
                    sum += input[(first_token + r) * row + n * shape.head_dim + c] *
                           weight[r * shape.heads + n];
                output[output_row * row + n * shape.head_dim + c] = sum;
            }
    });
}

/// Expected output [C,N,D] with its bound. Inputs are the stored numbers widened to binary64.
ExpectedTensor expected_nsa_compress(const CompressShape& shape, const Precision& precision,
                                     std::span<const double> input, std::span<const double> weight);

struct ExpectedCompressGrad {
    ExpectedTensor input_grad;  ///< [T,N,D]; exactly 0 with bound 0 where no block covers the token
    ExpectedTensor weight_grad;  ///< [block,N]
};

/// Expected gradients with their bounds; output_grad is [C,N,D].
ExpectedCompressGrad expected_nsa_compress_grad(const CompressShape& shape,
                                                const Precision& precision,
                                                std::span<const double> output_grad,
                                                std::span<const double> input,
                                                std::span<const double> weight);

}  // namespace attncheck::ref
