#include "impl/kernels/attention_kernels.h"

#include <algorithm>
#include <limits>

#include "impl/kernels/amx_float_kernels.h"
#include "impl/kernels/instruction_set.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impl/kernels/attention_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "impl/kernels/half_vectors-inl.h"
#include "impl/kernels/kernel_versions.h"
#include "impl/kernels/row_vectors-inl.h"
#include "impl/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

// Register tile: kMaxRows x kMaxCols sums, the loaded vectors and a broadcast fit in 32 registers
// on targets with 16 lanes and in 16 on the others.
constexpr int kMaxRows = 6;
constexpr int kMaxCols = kLanes >= 16 ? 4 : 2;

struct Fp32 {};

template <class Format>
HWY_INLINE FloatVec load(const std::uint16_t* from) {
    return Format::widen(hn::LoadU(HalfTag(), from));
}

// Where the vectors of `kCols` neighbouring columns are, for every k. `col` is in elements.
template <class Format, int kCols>
class PanelOperand {
public:
    HWY_INLINE PanelOperand(const PanelProduct& p, std::int64_t col) {
        for (int v = 0; v < kCols; ++v) {
            const std::int64_t at = col + v * kLanes;
            column_[v] = p.panels + at / kPanelCols * (p.depth * kPanelCols) + at % kPanelCols;
        }
    }
    HWY_INLINE FloatVec vector(std::int64_t k, int v) const {
        return load<Format>(column_[v] + k * kPanelCols);
    }

private:
    const std::uint16_t* column_[kCols];
};

template <class, int kCols>
class MatrixOperand {
public:
    template <class Product>
    HWY_INLINE MatrixOperand(const Product& p, std::int64_t col)
        : right_(p.right + col), stride_(p.right_stride) {}
    HWY_INLINE FloatVec vector(std::int64_t k, int v) const {
        return hn::LoadU(FloatTag(), right_ + k * stride_ + v * kLanes);
    }

private:
    const float* right_;
    std::int64_t stride_;
};

HWY_INLINE const float* left_at(const PanelProduct& p, std::int64_t row, std::int64_t k) {
    return p.left + row * p.left_stride + k;
}
HWY_INLINE const float* left_at(const FloatProduct& p, std::int64_t row, std::int64_t k) {
    return p.left + row * p.left_stride + k;
}
HWY_INLINE const float* left_at(const ScaledProduct& p, std::int64_t row, std::int64_t k) {
    return p.left + row * p.left_stride + k;
}
HWY_INLINE const float* left_at(const TransposedProduct& p, std::int64_t row, std::int64_t k) {
    return p.left + k * p.left_stride + row;
}

HWY_INLINE void store_sum(const PanelProduct& p, FloatVec sum, float* out) {
    hn::StoreU(hn::Mul(hn::Set(FloatTag(), p.factor), sum), FloatTag(), out);
}
HWY_INLINE void store_sum(const ScaledProduct& p, FloatVec sum, float* out) {
    hn::StoreU(hn::Mul(hn::Set(FloatTag(), p.factor), sum), FloatTag(), out);
}
HWY_INLINE void store_sum(const FloatProduct& p, FloatVec sum, float* out) {
    const FloatVec before = p.accumulate ? hn::LoadU(FloatTag(), out) : hn::Zero(FloatTag());
    hn::StoreU(hn::Add(before, sum), FloatTag(), out);
}
template <class Product>
HWY_INLINE void store_sum(const Product&, FloatVec sum, float* out) {
    hn::StoreU(hn::Add(hn::LoadU(FloatTag(), out), sum), FloatTag(), out);
}

template <template <class, int> class Operand, class Format, class Product, int kRows, int kCols>
void multiply_tile(const Product& p, std::int64_t row, std::int64_t col) {
    const FloatTag d;
    const Operand<Format, kCols> right(p, col);
    FloatVec sum[kRows][kCols];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) sum[r][v] = hn::Zero(d);
    }
    for (std::int64_t k = 0; k < p.depth; ++k) {
        FloatVec b[kCols];
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) b[v] = right.vector(k, v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const FloatVec a = hn::Set(d, *left_at(p, row + r, k));
#pragma GCC unroll 8
            for (int v = 0; v < kCols; ++v) sum[r][v] = hn::MulAdd(a, b[v], sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kCols; ++v) {
            store_sum(p, sum[r][v], p.out + (row + r) * p.out_stride + col + v * kLanes);
        }
    }
}

// All rows against kCols vectors of columns, in strips of nearly equal height.
template <template <class, int> class Operand, class Format, class Product, int kCols>
void multiply_rows(const Product& p, std::int64_t col) {
    using Tile = void (*)(const Product&, std::int64_t, std::int64_t);
    static constexpr Tile kTiles[kMaxRows] = {
        &multiply_tile<Operand, Format, Product, 1, kCols>,
        &multiply_tile<Operand, Format, Product, 2, kCols>,
        &multiply_tile<Operand, Format, Product, 3, kCols>,
        &multiply_tile<Operand, Format, Product, 4, kCols>,
        &multiply_tile<Operand, Format, Product, 5, kCols>,
        &multiply_tile<Operand, Format, Product, 6, kCols>,
    };
    const std::int64_t strips = (p.rows + kMaxRows - 1) / kMaxRows;
    std::int64_t row = 0;
    for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t height = (p.rows - row) / (strips - strip);
        kTiles[height - 1](p, row, col);
        row += height;
    }
}

template <template <class, int> class Operand, class Format, class Product>
void multiply(const Product& p) {
    std::int64_t col = 0;
    for (; col + kMaxCols * kLanes <= p.cols; col += kMaxCols * kLanes) {
        multiply_rows<Operand, Format, Product, kMaxCols>(p, col);
    }
    if constexpr (kMaxCols > 2) {
        if (col + 2 * kLanes <= p.cols) {
            multiply_rows<Operand, Format, Product, 2>(p, col);
            col += 2 * kLanes;
        }
    }
    if (col < p.cols) multiply_rows<Operand, Format, Product, 1>(p, col);
}

template <class Format>
void panel_product(const PanelProduct& p) {
    multiply<PanelOperand, Format>(p);
}
void scaled_product(const ScaledProduct& p) { multiply<MatrixOperand, Fp32>(p); }
void float_product(const FloatProduct& p) { multiply<MatrixOperand, Fp32>(p); }
void transposed_product(const TransposedProduct& p) { multiply<MatrixOperand, Fp32>(p); }

void exp_row(const float* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes)
        hn::StoreU(exp_of(hn::LoadU(FloatTag(), from + i)), FloatTag(), to + i);
}

#include "impl/kernels/softmax_rows-inl.h"

struct SoftmaxVectors {
    const SoftmaxTile& tile;

    HWY_INLINE float max_of_row(const float* row, std::int64_t cols) const {
        return HWY_NAMESPACE::max_of_row(row, cols);
    }
    HWY_INLINE void exp_of_16(float* values) const { exp_row(values, values, 16); }
    HWY_INLINE float weigh(std::int64_t row, float shift) const {
        const FloatTag d;
        float* weights = tile.logits + row * tile.stride;
        const FloatVec shifts = hn::Set(d, shift), factor = hn::Set(d, tile.prob_factor);
        FloatVec sum = hn::Zero(d);
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const FloatVec prob = exp_of(hn::Sub(hn::LoadU(d, weights + c), shifts));
            sum = hn::Add(sum, prob);
            hn::StoreU(hn::Mul(prob, factor), d, weights + c);
        }
        return sum_of_lanes(sum);
    }
};

void softmax_tile(const SoftmaxTile& tile) {
    const SoftmaxVectors vectors{tile};
    softmax_of(tile, vectors);
}

void gradient_tile(const GradientTile& tile) {
    const FloatTag d;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* logits = tile.logits + r * tile.stride;
        float* prob_grads = tile.prob_grads + r * tile.stride;
        const FloatVec row_max = hn::Set(d, tile.row_max[r]), row_sum = hn::Set(d, tile.row_sum[r]),
                       delta = hn::Set(d, tile.delta[r]);
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const FloatVec prob =
                hn::Div(exp_of(hn::Sub(hn::LoadU(d, logits + c), row_max)), row_sum);
            const FloatVec centred = hn::Sub(hn::LoadU(d, prob_grads + c), delta);
            hn::StoreU(prob, d, logits + c);
            hn::StoreU(hn::Mul(prob, centred), d, prob_grads + c);
        }
    }
}

// Below 1 an odd polynomial x + x^3 P(x^2), P of degree 6 fitted at Chebyshev nodes (0.4 u of what it
// leaves out, 1.4 u with its roundings); above, 1 - 2 / (e^2x + 1), where the quotient's errors are
// small against the result.
HWY_INLINE FloatVec tanh_of(FloatVec x) {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0f), size = hn::Abs(x), square = hn::Mul(size, size);
    FloatVec sum = hn::Set(d, -0x1.bc5486p-12f);
    for (const float coefficient : {0x1.4a424ep-9f, -0x1.0da90ep-7f, 0x1.62f81cp-6f,
                                    -0x1.b9d830p-5f, 0x1.11100ep-3f, -0x1.555554p-2f})
        sum = hn::MulAdd(sum, square, hn::Set(d, coefficient));
    const FloatVec near = hn::MulAdd(hn::Mul(size, square), sum, size);
    const auto is_near = hn::Lt(size, one);
    if (hn::AllTrue(d, is_near)) return hn::CopySign(near, x);  // scores are mostly far below the cap
    const FloatVec far = hn::Sub(
        one, hn::Div(hn::Set(d, 2.0f), hn::Add(exp_of(hn::Add(size, size)), one)));
    return hn::CopySign(hn::IfThenElse(is_near, near, far), x);
}

template <bool kSlopes, bool kDivides>
HWY_INLINE void softcap_rows(const SoftcapTile& tile) {
    const FloatTag d;
    const FloatVec cap = hn::Set(d, tile.cap), divisor = hn::Set(d, tile.divisor),
                   one = hn::Set(d, 1.0f);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* scores = tile.scores + r * tile.stride;
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const FloatVec score = hn::LoadU(d, scores + c),
                           t = tanh_of(kDivides ? hn::Div(score, divisor) : score);
            hn::StoreU(hn::Mul(cap, t), d, scores + c);
            if constexpr (kSlopes)
                hn::StoreU(hn::NegMulAdd(t, t, one), d, tile.slopes + r * tile.stride + c);
        }
    }
}

void softcap_tile(const SoftcapTile& tile) {
    if (tile.slopes != nullptr)
        tile.divisor == 1.0f ? softcap_rows<true, false>(tile) : softcap_rows<true, true>(tile);
    else
        tile.divisor == 1.0f ? softcap_rows<false, false>(tile) : softcap_rows<false, true>(tile);
}

template <class Format>
void widen_row(const std::uint16_t* from, float* to, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += kLanes)
        hn::StoreU(load<Format>(from + c), FloatTag(), to + c);
}

template <class Format>
void store_product(const float* from, float factor, std::uint16_t* to, std::int64_t count) {
    const FloatTag d;
    const FloatVec factors = hn::Set(d, factor);
    for (std::int64_t c = 0; c < count; c += kLanes) {
        // Adding +0 turns the -0 of a zero sum and a negative factor into +0.
        const FloatVec product = hn::MulAdd(hn::LoadU(d, from + c), factors, hn::Zero(d));
        hn::StoreU(Format::narrow(product), HalfTag(), to + c);
    }
}

template <class Format>
void store_quotient(const float* from, float divisor, std::uint16_t* to, std::int64_t count) {
    const FloatTag d;
    const FloatVec divisors = hn::Set(d, divisor);
    for (std::int64_t c = 0; c < count; c += kLanes) {
        const FloatVec quotient = hn::Div(hn::LoadU(d, from + c), divisors);
        hn::StoreU(Format::narrow(quotient), HalfTag(), to + c);
    }
}

void scale_row(float* row, float factor, std::int64_t count) {
    const FloatTag d;
    const FloatVec factors = hn::Set(d, factor);
    for (std::int64_t c = 0; c < count; c += kLanes)
        hn::StoreU(hn::Mul(hn::LoadU(d, row + c), factors), d, row + c);
}

void scale_and_add(float* row, float factor, const float* more, std::int64_t count) {
    const FloatTag d;
    const FloatVec factors = hn::Set(d, factor);
    for (std::int64_t c = 0; c < count; c += kLanes) {
        const FloatVec sum = hn::MulAdd(hn::LoadU(d, row + c), factors, hn::LoadU(d, more + c));
        hn::StoreU(hn::Add(sum, hn::Zero(d)), d, row + c);
    }
}

float dot(const float* left, const float* right, std::int64_t count) {
    const FloatTag d;
    FloatVec sum = hn::Zero(d);
    for (std::int64_t c = 0; c < count; c += kLanes)
        sum = hn::MulAdd(hn::LoadU(d, left + c), hn::LoadU(d, right + c), sum);
    return sum_of_lanes(sum);
}

// No early exit: most rows are finite.
bool all_finite(const float* values, std::int64_t count) {
    const FloatTag d;
    const WordTag dw;
    const WordVec exponent = hn::Set(dw, 0x7f800000u);
    auto any = hn::Ne(exponent, exponent);
    for (std::int64_t i = 0; i < count; i += kLanes) {
        const WordVec bits = hn::And(hn::BitCast(dw, hn::LoadU(d, values + i)), exponent);
        any = hn::Or(any, hn::Eq(bits, exponent));
    }
    return hn::AllFalse(dw, any);
}

const AttentionKernels* attention_kernels() {
    static const AttentionKernels table = {
        nullptr,
        hwy::TargetName(HWY_TARGET),
        nullptr,
        {&widen_row<Fp16>, &widen_row<Bf16>},
        {&store_product<Fp16>, &store_product<Bf16>},
        {&store_quotient<Fp16>, &store_quotient<Bf16>},
        &scale_row,
        &scale_and_add,
        &dot,
        {&panel_product<Fp16>, &panel_product<Bf16>},
        &scaled_product,
        &float_product,
        &transposed_product,
        &softmax_tile,
        &gradient_tile,
        &softcap_tile,
        &exp_row,
        &all_finite,
        &transpose_words,
    };
    return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attncheck::impl {
namespace {

ATTNCHECK_VERSIONS(attention_kernels)

AttentionKernels kernels_of(const InstructionSet& set) {
    AttentionKernels kernels = *versions_of_attention_kernels(set);
    kernels.isa = set.name;
    kernels.bf16_dot = set.bf16_dot != nullptr ? set.bf16_dot() : nullptr;
    use_matrix_unit_for_floats(kernels);
    return kernels;
}

}  // namespace

const AttentionKernels& default_attention_kernels() {
    static const AttentionKernels kernels = kernels_of(default_instruction_set());
    return kernels;
}

std::optional<AttentionKernels> find_attention_kernels(const char* isa) {
    const std::optional<InstructionSet> set = find_instruction_set(isa);
    if (!set) return std::nullopt;
    return kernels_of(*set);
}

}  // namespace attncheck::impl
#endif  // HWY_ONCE
