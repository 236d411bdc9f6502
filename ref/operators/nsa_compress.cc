#include "ref/operators/nsa_compress.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace attncheck::ref {
namespace {

void require_size(const char* name, std::size_t size, const char* formula, std::int64_t expected) {
    if (static_cast<std::int64_t>(size) != expected)
        throw std::invalid_argument("nsa_compress: " + std::string(name) + " has " +
                                    std::to_string(size) + " elements, " + formula + " is " +
                                    std::to_string(expected));
}

void require_shape(const CompressShape& shape) {
    if (shape.heads < 1 || shape.head_dim < 1 || shape.block < 1 || shape.stride < 1)
        throw std::invalid_argument(
            "nsa_compress: heads, head_dim, block and stride must be positive, they are " +
            std::to_string(shape.heads) + ", " + std::to_string(shape.head_dim) + ", " +
            std::to_string(shape.block) + ", " + std::to_string(shape.stride));
    std::int64_t tokens = 0;
    for (const std::int64_t length : shape.seq_lengths) {
        if (length < 0)
            throw std::invalid_argument("nsa_compress: sequence length " + std::to_string(length));
        tokens += length;
    }
    if (tokens > shape.total_tokens)
        throw std::invalid_argument("nsa_compress: seq_lengths sum to " + std::to_string(tokens) +
                                    ", total_tokens is " + std::to_string(shape.total_tokens));
}

/// One operand of the products, with what ProductSum::add would work out again for every product.
struct Operand {
    std::span<const double> value;
    std::vector<int> lowest;  ///< lowest_set_bit per element
    double least;             ///< what is smaller is subnormal
    bool flushable = false;   ///< holds a subnormal

    Operand(std::span<const double> values, Dtype dtype) : value(values), lowest(values.size()), least(min_normal(dtype)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            lowest[i] = lowest_set_bit(values[i]);
            flushable |= subnormal(i);
        }
    }
    bool subnormal(std::size_t i) const { return value[i] != 0 && std::fabs(value[i]) < least; }
};

/// ProductSum for every element of a tensor, one array per field: the inner loops run over
/// contiguous memory. The number of terms is the same for a whole row and belongs to the caller.
struct ProductSums {
    std::vector<double> exact, magnitude, flushed;
    std::vector<int> lowest;
    bool with_flushed;

    ProductSums(std::int64_t size, bool flushable)
        : exact(size),
          magnitude(size),
          flushed(flushable ? size : 0),
          lowest(size, ProductSum{}.lowest_bit),
          with_flushed(flushable) {}

    /// this[row + c] += a[i] * b[column + c]  for c < length: one scalar times a row.
    void add_scaled_row(std::int64_t row, std::int64_t length, const Operand& a, std::int64_t i,
                        const Operand& b, std::int64_t column) {
        double* const sums = exact.data() + row;
        double* const magnitudes = magnitude.data() + row;
        int* const lowest_bits = lowest.data() + row;
        const double* const factors = b.value.data() + column;
        const int* const factor_bits = b.lowest.data() + column;
        const double scalar = a.value[i];
        const int scalar_bit = a.lowest[i];
        for (std::int64_t c = 0; c < length; ++c) {
            const double product = scalar * factors[c];
            sums[c] += product;
            magnitudes[c] += std::isfinite(product) ? std::fabs(product) : 0;
            lowest_bits[c] = std::min(lowest_bits[c], scalar_bit + factor_bits[c]);
        }
        if (!with_flushed) return;
        for (std::int64_t c = 0; c < length; ++c)
            if (a.subnormal(i) || b.subnormal(column + c))
                flushed[row + c] += std::fabs(scalar * factors[c]);
    }

    /// this[element] += sum over c < length of a[i + c] * b[j + c]: a dot product.
    void add_dot(std::int64_t element, std::int64_t length, const Operand& a, std::int64_t i,
                 const Operand& b, std::int64_t j) {
        double sum = exact[element], total = magnitude[element];
        int bit = lowest[element];
        for (std::int64_t c = 0; c < length; ++c) {
            const double product = a.value[i + c] * b.value[j + c];
            sum += product;
            total += std::isfinite(product) ? std::fabs(product) : 0;
            bit = std::min(bit, a.lowest[i + c] + b.lowest[j + c]);
        }
        exact[element] = sum, magnitude[element] = total, lowest[element] = bit;
        if (!with_flushed) return;
        for (std::int64_t c = 0; c < length; ++c)
            if (a.subnormal(i + c) || b.subnormal(j + c))
                flushed[element] += std::fabs(a.value[i + c] * b.value[j + c]);
    }

    ProductSum at(std::int64_t i, std::int64_t terms) const {
        return {exact[i], magnitude[i], with_flushed ? flushed[i] : 0, lowest[i],
                static_cast<double>(terms)};
    }
};

bool may_flush(const Precision& precision, const Operand& a, const Operand& b) {
    return flushes_subnormals(precision) && (a.flushable || b.flushable);
}

}  // namespace

std::int64_t CompressShape::total_blocks() const {
    return std::accumulate(
        seq_lengths.begin(), seq_lengths.end(), std::int64_t{0},
        [this](std::int64_t sum, std::int64_t length) { return sum + blocks_of(length); });
}

ExpectedTensor expected_nsa_compress(const CompressShape& shape, const Precision& precision,
                                     std::span<const double> input,
                                     std::span<const double> weight) {
    const std::int64_t heads = shape.heads, dim = shape.head_dim, row = heads * dim;
    require_shape(shape);
    require_size("input", input.size(), "total_tokens * heads * head_dim",
                 shape.total_tokens * row);
    require_size("weight", weight.size(), "block * heads", shape.block * heads);

    const Operand x(input, precision.dtype), w(weight, precision.dtype);
    ExpectedTensor expected(shape.total_blocks() * row);
    ProductSums sums(row, may_flush(precision, x, w));
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        sums = ProductSums(row, sums.with_flushed);
        for (std::int64_t r = 0; r < shape.block; ++r)
            for (std::int64_t n = 0; n < heads; ++n)
                sums.add_scaled_row(n * dim, dim, w, r * heads + n, x,
                                    (first_token + r) * row + n * dim);
        for (std::int64_t i = 0; i < row; ++i)
            finish(sums.at(i, shape.block), precision, expected, output_row * row + i);
    });
    return expected;
}

ExpectedCompressGrad expected_nsa_compress_grad(const CompressShape& shape,
                                                const Precision& precision,
                                                std::span<const double> output_grad,
                                                std::span<const double> input,
                                                std::span<const double> weight) {
    const std::int64_t heads = shape.heads, dim = shape.head_dim, row = heads * dim;
    require_shape(shape);
    const std::int64_t blocks = shape.total_blocks();
    require_size("output_grad", output_grad.size(), "total_blocks * heads * head_dim",
                 blocks * row);
    require_size("input", input.size(), "total_tokens * heads * head_dim",
                 shape.total_tokens * row);
    require_size("weight", weight.size(), "block * heads", shape.block * heads);

    const Operand dy(output_grad, precision.dtype), x(input, precision.dtype), w(weight, precision.dtype);
    ProductSums input_sums(shape.total_tokens * row, may_flush(precision, w, dy));
    ProductSums weight_sums(shape.block * heads, may_flush(precision, dy, x));
    std::vector<std::int64_t> windows(
        shape.total_tokens);  // blocks that cover a token = terms of its gradient
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        for (std::int64_t r = 0; r < shape.block; ++r) {
            const std::int64_t token = first_token + r;
            ++windows[token];
            for (std::int64_t n = 0; n < heads; ++n) {
                const std::int64_t from = output_row * row + n * dim, at = token * row + n * dim;
                input_sums.add_scaled_row(at, dim, w, r * heads + n, dy, from);
                weight_sums.add_dot(r * heads + n, dim, dy, from, x, at);
            }
        }
    });

    ExpectedCompressGrad expected{ExpectedTensor(input.size()), ExpectedTensor(weight.size())};
    for (std::int64_t t = 0; t < shape.total_tokens; ++t)
        for (std::int64_t i = t * row; i < (t + 1) * row; ++i)
            finish(input_sums.at(i, windows[t]), precision, expected.input_grad, i);
    for (std::size_t i = 0; i < weight.size(); ++i)
        finish(weight_sums.at(i, blocks * dim), precision, expected.weight_grad, i);
    return expected;
}

}  // namespace attncheck::ref
