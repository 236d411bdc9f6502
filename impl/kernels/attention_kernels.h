#ifndef ATTNCHECK_IMPL_ATTENTION_KERNELS_H
#define ATTNCHECK_IMPL_ATTENTION_KERNELS_H

#include <cstdint>
#include <optional>

#include "impl/kernels/bf16_dot_kernels.h"

/// Micro-kernels of attention: matrix products on small tiles, softmax, row conversions.
///
/// They know neither sequences nor masks; every factor passed is multiplied. fp32 throughout,
/// 16-bit operands are widened exactly when loaded. Each element of a product is one sum in order
/// of the depth, whatever the sizes of the tile it is computed in, so a driver may cut rows and
/// columns as it likes without changing bits. Columns are multiples of 16 unless said otherwise;
/// strides count elements; pointers are aligned to an element only.
namespace attncheck::impl {

/// Columns of a panel.
inline constexpr std::int64_t kPanelCols = 16;

/// out[m, n] = factor * sum_k left[m, k] * right[k, n]; right as panels
/// [cols / kPanelCols, depth, kPanelCols].
struct PanelProduct {
    const float* left;
    std::int64_t left_stride, rows;
    const std::uint16_t* panels;
    std::int64_t depth, cols;
    float factor;
    float* out;
    std::int64_t out_stride;
};

/// out[m, n] = factor * sum_k left[m, k] * right[k, n]. For products of elements.
struct ScaledProduct {
    const float* left;
    std::int64_t left_stride, rows;
    const float* right;
    std::int64_t right_stride, depth, cols;
    float factor;
    float* out;
    std::int64_t out_stride;
};

/// out[m, n] = 0 + sum_k left[m, k] * right[k, n], or out += that. For sums of weights times
/// elements: with a weight of 0, a finite element changes no bits.
struct FloatProduct {
    const float* left;
    std::int64_t left_stride, rows;
    const float* right;
    std::int64_t right_stride, depth, cols;
    bool accumulate;
    float* out;
    std::int64_t out_stride;
};

/// out[m, n] += sum_k left[k, m] * right[k, n].
struct TransposedProduct {
    const float* left;
    std::int64_t left_stride, rows;
    const float* right;
    std::int64_t right_stride, depth, cols;
    float* out;
    std::int64_t out_stride;
};

/// One step of online softmax (Milakov and Gimelshein 2018, algorithm 3) for every row:
///
///   m' = max(m, max_j logit_j),  l' = l * exp(m - m') + sum_j exp(logit_j - m'),
///   logit_j := factor * exp(logit_j - m'),  rescale := exp(m - m')
///
/// Before the first tile m = -inf and l = 0. A column that is no key holds -inf and becomes 0. NaN
/// in a logit makes m' and l' NaN. While m' is -inf the exponentials are 0.
struct SoftmaxTile {
    float* logits;
    std::int64_t stride, rows, cols;
    float prob_factor;
    float *row_max, *row_sum, *rescale;
};

/// From given statistics: logit := P = exp(logit - row_max) / row_sum, then
/// prob_grad := dS = P * (prob_grad - delta).
struct GradientTile {
    float *logits, *prob_grads;
    std::int64_t stride, rows, cols;
    const float *row_max, *row_sum, *delta;
};

/// score := cap * tanh(score / divisor), and slope := 1 - tanh^2(score / divisor) unless `slopes` is
/// null. The divisor is cap, or 1 where the scores have been divided.
struct SoftcapTile {
    float* scores;
    std::int64_t stride, rows, cols;
    float cap, divisor;
    float* slopes;  ///< stride as scores
};

/// to[c, r] = from[r, c] of words of 32 bits; rows is a multiple of 16, cols anything.
struct WordTranspose {
    const std::uint32_t* from;
    std::int64_t from_stride, rows, cols;
    std::uint32_t* to;
    std::int64_t to_stride;
};

/// One instruction set's kernels; the arrays are indexed by HalfFormat.
struct AttentionKernels {
    const char* isa;
    const char* target;              ///< what the compiler was told, in Highway's words
    const Bf16DotKernels* bf16_dot;  ///< null where the set has no such instruction
    void (*widen_row[2])(const std::uint16_t* from, float* to, std::int64_t count);
    /// Rounds from * factor, with -0 only where the product is a non-zero number that underflows.
    void (*store_product[2])(const float* from, float factor, std::uint16_t* to,
                             std::int64_t count);
    void (*store_quotient[2])(const float* from, float divisor, std::uint16_t* to,
                              std::int64_t count);
    void (*scale_row)(float* row, float factor, std::int64_t count);
    /// row = row * factor + more; what comes out as 0 is +0, so that more zeros change no bits.
    void (*scale_and_add)(float* row, float factor, const float* more, std::int64_t count);
    float (*dot)(const float* left, const float* right, std::int64_t count);
    void (*panel_product[2])(const PanelProduct&);
    void (*scaled_product)(const ScaledProduct&);
    void (*float_product)(const FloatProduct&);
    void (*transposed_product)(const TransposedProduct&);
    void (*softmax_tile)(const SoftmaxTile&);
    void (*gradient_tile)(const GradientTile&);
    /// tanh within 1.5 ulp; that of infinity is 1, NaN stays NaN.
    void (*softcap_tile)(const SoftcapTile&);
    /// e^x within 2 ulp, exactly 1 at 0; overflow gives infinity, NaN stays NaN.
    void (*exp_row)(const float* from, float* to, std::int64_t count);
    bool (*all_finite)(const float* values, std::int64_t count);
    void (*transpose_words)(const WordTranspose&);
};

/// Kernels of default_instruction_set(), with its exception.
const AttentionKernels& default_attention_kernels();

/// Kernels by name, as in find_instruction_set; nothing if not available here.
std::optional<AttentionKernels> find_attention_kernels(const char* isa);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_KERNELS_H
