#ifndef ATTNCHECK_IMPL_BF16_DOT_KERNELS_H
#define ATTNCHECK_IMPL_BF16_DOT_KERNELS_H

#include <cstdint>

/// Micro-kernels around the instruction that multiplies two pairs of bf16 numbers and adds both
/// products to an fp32 sum (vdpbf16ps).
///
/// The instruction reads subnormals as zero and writes subnormal sums as zero. Its operands are
/// therefore limited so that neither ever occurs:
///
///   an element of a tensor is *plain* if it is 0 or its magnitude is in [2^-38, 2^20),
///   a weight (probability, score gradient) if its magnitude is below 2^20; it is multiplied by
///   kWeightScale = 2^76 before it is rounded, which the product takes back in fp32.
///
/// The least fp32 number, 2^-149, so becomes 2^-73, and with 8 bits each, scaled weights are
/// multiples of 2^-80 and elements of 2^-45: products, and so every partial sum, are multiples of
/// 2^-125 and none that is not 0 is below the smallest normal number, 2^-126. The largest, 64
/// or 128 products of 2^96 2^20, are below 2^127. A tiny weight is thus as exact as any other. What
/// is not plain is for the fp32 kernels.
///
/// A *pair* is two bf16 numbers in 32 bits, the one of the lower index in the lower half. Rows of
/// halves begin at multiples of two elements; strides count elements of the pointer's type.
namespace attncheck::impl {

inline constexpr float kWeightScale = 0x1p76f;

/// out[m, n] = factor * sum_k left[m, k] * right[k, n], or out += that. What comes out as 0 is +0,
/// though a negative sum may have vanished: to add more products of 0 then changes no bits.
/// left holds pairs along k, element (m, k) at m * left_row + k * left_depth, one of which is 1;
/// right pairs along k, [depth_pairs, cols]; cols is a multiple of 16.
struct PairProduct {
    const std::uint32_t* left;
    std::int64_t left_row, left_depth, rows;
    const std::uint32_t* right;
    std::int64_t right_stride, depth_pairs, cols;
    bool accumulate;
    float factor;
    float* out;
    std::int64_t out_stride;
};

struct SoftmaxTile;  // attention_kernels.h
struct GradientTile;

/// Rows of a tile from their queries to their sums; the left operand of `sums` is `halves`, those
/// of the weights, with the softmax's stride.
struct AttentionTile {
    PairProduct logits;  ///< not accumulated
    const SoftmaxTile& softmax;
    std::uint16_t* halves;
    PairProduct sums;
};

/// A matrix of weights to be scaled and rounded to nearest even.
struct WeightTile {
    const float* from;
    std::int64_t stride, rows, cols;  ///< cols a multiple of 16, stride one of 32
};

struct Bf16DotKernels {
    void (*product)(const PairProduct&);
    /// Whether all of count (a multiple of 16) elements of a tensor are plain.
    bool (*all_plain)(const std::uint16_t* row, std::int64_t count);
    /// to[i] = from[i] where plain, otherwise 0; count a multiple of 16.
    void (*keep_plain)(const std::uint16_t* from, std::uint16_t* to, std::int64_t count);
    /// [rows, width] halves to pairs [rows / 2, width]: row 2 i in the lower halves. rows is even,
    /// width a multiple of 16.
    void (*pair_rows)(const std::uint16_t* from, std::int64_t rows, std::int64_t width,
                      std::uint32_t* to);
    /// Rounded rows of halves [rows, stride], what is not plain as 0; returns whether there was
    /// any.
    bool (*narrow_rows)(const WeightTile&, std::uint16_t* to);
    /// AttentionKernels::softmax_tile, and narrow_rows of the weights that it leaves.
    bool (*softmax_tile)(const SoftmaxTile&, std::uint16_t* to);
    /// product of the logits, softmax_tile, product of the sums; sums that are added to are
    /// rescaled before. Returns whether rounding has left out a weight.
    bool (*attend)(const AttentionTile&);
    /// AttentionKernels::gradient_tile, P within an ulp of that.
    void (*gradient_tile)(const GradientTile&);
    /// Rounded pairs of neighbouring rows, [(rows + 1) / 2, stride]; a missing last row is 0.
    bool (*narrow_row_pairs)(const WeightTile&, std::uint32_t* to);
    /// Weights as they are, in two matrices with the same stride: plain ones, and what narrowing
    /// has left out; 0 elsewhere.
    void (*split_weights)(const WeightTile&, float* plain, float* rest);
};

/// Null where this machine, or the compiler's target, has no such instruction.
const Bf16DotKernels* bf16_dot_kernels();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_BF16_DOT_KERNELS_H
