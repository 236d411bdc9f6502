// For mutants_test: small problems, their tensors, and the walk over their blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

struct PlainCase {
    bool fp16 = true;
    std::vector<std::int64_t> ends;
    std::int64_t tokens = 0, heads = 1, head_dim = 16, block = 32, stride = 16;
    bool strided = false;  ///< gaps between heads and tokens, channels two apart
    std::int64_t blocks() const;
};

inline std::int64_t PlainCase::blocks() const {
    std::int64_t count = 0, begin = 0;
    for (const std::int64_t end : ends) {
        if (end - begin >= block) count += (end - begin - block) / stride + 1;
        begin = end;
    }
    return count;
}

/// Values k/64, |k| <= 128: exact in both half types.
inline std::uint16_t encode(bool fp16, int k) {
    const float value = static_cast<float>(k) / 64.0f;
    if (value == 0.0f) return 0;
    int exponent = 0;
    const float fraction =
        std::frexp(std::fabs(value), &exponent) * 2.0f - 1.0f;  // |value| = (1+fraction) 2^(e-1)
    const int bits = fp16 ? 10 : 7, bias = fp16 ? 15 : 127;
    const int code = (exponent - 1 + bias) << bits | static_cast<int>(std::ldexp(fraction, bits));
    return static_cast<std::uint16_t>(code | (value < 0 ? 0x8000 : 0));
}

inline double decode(bool fp16, std::uint16_t bits) {
    const int width = fp16 ? 10 : 7, bias = fp16 ? 15 : 127;
    const int exponent = (bits & 0x7fff) >> width, fraction = bits & ((1 << width) - 1);
    if (exponent == 2 * bias + 1)
        return fraction == 0 ? std::copysign(INFINITY, bits & 0x8000 ? -1 : 1) : NAN;
    const double magnitude = exponent == 0
                                 ? std::ldexp(fraction, 1 - bias - width)
                                 : std::ldexp(fraction + (1 << width), exponent - bias - width);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/// A tensor with its memory. Elements that the operator must write start out as 0x7b7b.
class Tensor {
public:
    Tensor(const PlainCase& c, std::vector<std::int64_t> shape, std::mt19937* random)
        : fp16_(c.fp16) {
        view_.dtype = c.fp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16;
        view_.rank = static_cast<std::int32_t>(shape.size());
        std::int64_t pitch = c.strided ? 2 : 1;
        for (std::size_t i = shape.size(); i-- > 0;) {
            view_.shape[i] = shape[i];
            view_.strides[i] = pitch;
            pitch = pitch * shape[i] + (c.strided ? 3 : 0);
        }
        memory_.assign(static_cast<std::size_t>(pitch) + 1, 0x7b7b);
        view_.data = memory_.data();
        std::uniform_int_distribution<int> values(-128, 128);
        if (random != nullptr)
            for (std::uint16_t& element : memory_) element = encode(fp16_, values(*random));
    }

    const attncheck_tensor& view() const { return view_; }
    double at(std::int64_t i, std::int64_t j, std::int64_t k = 0) const {
        const std::int64_t offset = i * view_.strides[0] + j * view_.strides[1] +
                                    (view_.rank > 2 ? k * view_.strides[2] : 0);
        return decode(fp16_, memory_[static_cast<std::size_t>(offset)]);
    }

private:
    bool fp16_;
    attncheck_tensor view_{};
    std::vector<std::uint16_t> memory_;
};

/// Calls visit(output_row, first_token) for every block.
template <class Visit>
void for_each_block(const PlainCase& c, Visit&& visit) {
    std::int64_t begin = 0, row = 0;
    for (const std::int64_t end : c.ends) {
        for (std::int64_t first = begin; first + c.block <= end; first += c.stride)
            visit(row++, first);
        begin = end;
    }
}

/// Half an ulp of the output, and fp32 sums of `terms` terms of magnitude up to 4.
inline bool is_close(bool fp16, double expected, double actual, double terms) {
    const double bound = std::fabs(expected) * std::ldexp(1.0, fp16 ? -11 : -8) +
                         terms * terms * 4 * 0x1p-24 + 0x1p-24;
    return std::fabs(expected - actual) <= bound;
}

}  // namespace attncheck::mutants
