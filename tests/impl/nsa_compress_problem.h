#ifndef ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_PROBLEM_H
#define ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_PROBLEM_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "impl/kernels/half_formats.h"
#include "impl/operators/nsa_compress/nsa_compress.h"

/// Calls of NsaCompress and its gradient on tensors whose every element, and every gap between
/// elements, can be looked at.
namespace attncheck::impl::compress_problem {

inline constexpr std::uint16_t kPoison =
    0x5a5a;  // finite in both formats and not produced by the data below

// A tensor in strided storage with poisoned gaps. Values are addressed by logical index.
struct Tensor {
    std::vector<std::int64_t> shape, strides;
    std::int64_t origin = 0;
    std::vector<std::uint16_t> storage;

    // order: dimensions from slowest to fastest; gap: elements between neighbours of the fastest;
    // negative reverses it.
    Tensor(std::vector<std::int64_t> extents, std::vector<int> order, std::int64_t gap)
        : shape(std::move(extents)) {
        strides.resize(shape.size());
        std::int64_t step = std::abs(gap);
        for (std::size_t i = order.size(); i-- > 0;) {
            const auto dim = static_cast<std::size_t>(order[i]);
            strides[dim] = step;
            step = step * shape[dim] + (std::abs(gap) > 1 ? 3 : 0);
        }
        const auto fastest = static_cast<std::size_t>(order.back());
        if (gap < 0) {
            origin = strides[fastest] * (shape[fastest] - 1);
            strides[fastest] = -strides[fastest];
        }
        origin += 1;  // an address that is aligned to an element only
        storage.assign(static_cast<std::size_t>(step + 64), kPoison);
    }
    // The way past the cache needs rows that begin at lines of memory.
    void move_to_a_line() {
        while (reinterpret_cast<std::uintptr_t>(storage.data() + origin) % 64 != 0) ++origin;
    }
    std::uint16_t& at(std::int64_t i, std::int64_t j, std::int64_t k = 0) {
        const std::int64_t offset =
            i * strides[0] + j * strides[1] + (shape.size() > 2 ? k * strides[2] : 0);
        return storage[static_cast<std::size_t>(origin + offset)];
    }
    attncheck_tensor view(HalfFormat format) {
        attncheck_tensor made{};
        made.data = storage.data() + origin;
        made.dtype = format == HalfFormat::kFp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16;
        made.rank = static_cast<std::int32_t>(shape.size());
        for (std::size_t dim = 0; dim < shape.size(); ++dim) {
            made.shape[dim] = shape[dim];
            made.strides[dim] = strides[dim];
        }
        return made;
    }
    std::int64_t depth() const { return shape.size() > 2 ? shape[2] : 1; }
    std::vector<std::uint16_t> logical() {
        std::vector<std::uint16_t> values;
        for (std::int64_t i = 0; i < shape[0]; ++i) {
            for (std::int64_t j = 0; j < shape[1]; ++j) {
                for (std::int64_t k = 0; k < depth(); ++k) values.push_back(at(i, j, k));
            }
        }
        return values;
    }
    std::size_t poisoned() const {
        return static_cast<std::size_t>(std::count(storage.begin(), storage.end(), kPoison));
    }
};

struct Shape {
    std::int64_t tokens, heads, dim, block, stride;
    std::vector<std::int64_t> lengths;

    std::int64_t rows() const {
        std::int64_t count = 0, previous = 0;
        for (const std::int64_t end : lengths) {
            for (std::int64_t begin = previous; begin + block <= end; begin += stride) ++count;
            previous = end;
        }
        return count;
    }
};

enum class Storage { kPacked, kHeadsFirst, kReversed };

struct Problem {
    Shape shape;
    HalfFormat format;
    Tensor input, weight, output, output_grad, input_grad, weight_grad;

    Problem(Shape of, HalfFormat half, Storage storage = Storage::kPacked)
        : shape(std::move(of)),
          format(half),
          input(make({shape.tokens, shape.heads, shape.dim}, storage)),
          weight({shape.block, shape.heads}, {0, 1}, storage == Storage::kReversed ? -2 : 1),
          output(make({shape.rows(), shape.heads, shape.dim}, storage)),
          output_grad(make({shape.rows(), shape.heads, shape.dim}, storage)),
          input_grad(make({shape.tokens, shape.heads, shape.dim}, storage)),
          weight_grad({shape.block, shape.heads}, {0, 1}, storage == Storage::kReversed ? -2 : 1) {
        std::mt19937 random(7);
        // Positive and of one binade: no cancellation, so that instruction sets may differ by an
        // ulp only.
        std::uniform_real_distribution<float> values(1.0f, 2.0f);
        for (Tensor* tensor : {&input, &weight, &output_grad}) {
            for (std::int64_t i = 0; i < tensor->shape[0]; ++i) {
                for (std::int64_t j = 0; j < tensor->shape[1]; ++j) {
                    for (std::int64_t k = 0; k < tensor->depth(); ++k) {
                        tensor->at(i, j, k) = narrow(format, values(random) * 0.0625f);
                    }
                }
            }
        }
    }
    static Tensor make(std::vector<std::int64_t> extents, Storage storage) {
        if (storage == Storage::kPacked) return Tensor(std::move(extents), {0, 1, 2}, 1);
        if (storage == Storage::kHeadsFirst) return Tensor(std::move(extents), {1, 0, 2}, 1);
        return Tensor(std::move(extents), {0, 2, 1}, -3);
    }
    attncheck_nsa_compress_args forward_args() {
        return {input.view(format),
                weight.view(format),
                {shape.lengths.data(), std::ssize(shape.lengths)},
                "TND",
                shape.block,
                shape.stride,
                0,
                output.view(format)};
    }
    attncheck_nsa_compress_grad_args gradient_args() {
        return {output_grad.view(format),
                input.view(format),
                weight.view(format),
                {shape.lengths.data(), std::ssize(shape.lengths)},
                shape.block,
                shape.stride,
                0,
                "TND",
                input_grad.view(format),
                weight_grad.view(format)};
    }
    void run() {
        const auto forward = forward_args();
        const auto gradient = gradient_args();
        ASSERT_EQ(attncheck_nsa_compress(&forward), ATTNCHECK_OK);
        if (shape.block == shape.stride) return;  // legal in the forward only
        ASSERT_EQ(attncheck_nsa_compress_grad(&gradient), ATTNCHECK_OK);
    }
    void run_with(const KernelTable& kernels) {
        nsa_compress(forward_args(), kernels);
        nsa_compress_grad(gradient_args(), kernels);
    }
};

}  // namespace attncheck::impl::compress_problem

#endif  // ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_PROBLEM_H
