#include "impl/attention_kernels.h"

#include <algorithm>
#include <limits>

#include "impl/instruction_set.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impl/attention_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "impl/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
constexpr std::int64_t kPanelCols = 16;

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

template <class Format, int kCols>
class RowOperand {
public:
    HWY_INLINE RowOperand(const RowProduct& p, std::int64_t col) : rows_(p.right), col_(col) {}
    HWY_INLINE FloatVec vector(std::int64_t k, int v) const {
        return load<Format>(rows_[k] + col_ + v * kLanes);
    }

private:
    const std::uint16_t* const* rows_;
    std::int64_t col_;
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
HWY_INLINE const float* left_at(const RowProduct& p, std::int64_t row, std::int64_t k) {
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
template <class Format>
void row_product(const RowProduct& p) {
    multiply<RowOperand, Format>(p);
}
void scaled_product(const ScaledProduct& p) { multiply<MatrixOperand, Fp32>(p); }
void float_product(const FloatProduct& p) { multiply<MatrixOperand, Fp32>(p); }
void transposed_product(const TransposedProduct& p) { multiply<MatrixOperand, Fp32>(p); }

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. The Taylor polynomial of degree 7 leaves
// out less than r^8 / 8! < 2^-27.
HWY_INLINE FloatVec exp_polynomial(FloatVec r) {
    const FloatTag d;
    FloatVec sum = hn::Set(d, 1.0f / 5040);
    for (const float coefficient :
         {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        sum = hn::MulAdd(sum, r, hn::Set(d, coefficient));
    }
    return sum;
}

// ln 2 in two parts; the first has 9 bits, so that its product with n is exact.
HWY_INLINE FloatVec exp_remainder(FloatVec x, FloatVec minus_n) {
    const FloatTag d;
    return hn::MulAdd(minus_n, hn::Set(d, -0x1.bd0105c610ca8p-13f),
                      hn::MulAdd(minus_n, hn::Set(d, 0x1.63p-1f), x));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// vscalefps reaches subnormal results and infinity in one step, vmaxps and vminps return their
// second operand if it is NaN.
HWY_INLINE FloatVec exp_of(FloatVec x) {
    const FloatTag d;
    // e^-104 rounds to 0 and e^89 to infinity.
    const __m512 bounded =
        _mm512_min_ps(hn::Set(d, 89.0f).raw, _mm512_max_ps(hn::Set(d, -104.0f).raw, x.raw));
    const FloatVec n{_mm512_roundscale_ps(_mm512_mul_ps(bounded, hn::Set(d, 1.44269504f).raw),
                                          _MM_FROUND_TO_NEAREST_INT)};
    const FloatVec r = exp_remainder(FloatVec{bounded}, hn::Neg(n));
    return FloatVec{_mm512_scalef_ps(exp_polynomial(r).raw, n.raw)};
}

#else

// Scaling in two steps reaches subnormal results and 2^128.
HWY_INLINE FloatVec exp_of(FloatVec x) {
    const FloatTag d;
    const SignedWordTag di;
    // e^-104 rounds to 0 and e^89 to infinity. Written so that NaN becomes a number here.
    const FloatVec low = hn::Set(d, -104.0f), high = hn::Set(d, 89.0f);
    FloatVec bounded = hn::IfThenElse(hn::Gt(x, low), x, low);
    bounded = hn::IfThenElse(hn::Lt(bounded, high), bounded, high);
    const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
    const FloatVec r = exp_remainder(bounded, hn::Neg(hn::ConvertTo(d, n)));
    const auto half_n = hn::ShiftRight<1>(n);
    const auto power_of_two = [&](auto exponent) HWY_ATTR {
        return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
    };
    const FloatVec scaled =
        hn::Mul(hn::Mul(exp_polynomial(r), power_of_two(half_n)), power_of_two(hn::Sub(n, half_n)));
    return hn::IfThenElse(hn::IsNaN(x), x, scaled);
}

#endif

void exp_row(const float* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes)
        hn::StoreU(exp_of(hn::LoadU(FloatTag(), from + i)), FloatTag(), to + i);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// Halves, quarters, ... of the vector, as the loop below adds them.
HWY_INLINE float sum_of_lanes(FloatVec vector) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(vector.raw), _mm512_extractf32x8_ps(vector.raw, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// NaN if any element is. vmaxps drops a NaN in its first operand; a comparison finds it in one of
// two vectors.
HWY_INLINE float max_of_row(const float* row, std::int64_t cols) {
    __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    unsigned nan = 0;
    std::int64_t c = 0;
    for (; c + 32 <= cols; c += 32) {
        const __m512 x = _mm512_loadu_ps(row + c), y = _mm512_loadu_ps(row + c + 16);
        nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, _mm512_max_ps(y, most));
    }
    if (c < cols) {
        const __m512 x = _mm512_loadu_ps(row + c);
        nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, most);
    }
    if (nan != 0) return std::numeric_limits<float>::quiet_NaN();
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256(most), _mm512_extractf32x8_ps(most, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#else

HWY_INLINE float sum_of_lanes(FloatVec vector) {
    alignas(64) float lanes[kLanes];
    hn::Store(vector, FloatTag(), lanes);
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
        for (std::int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

// NaN if any element is; vector maxima alone drop NaN on some targets.
HWY_INLINE float max_of_row(const float* row, std::int64_t cols) {
    const FloatTag d;
    FloatVec most = hn::Set(d, -std::numeric_limits<float>::infinity()), nan = hn::Zero(d);
    for (std::int64_t c = 0; c < cols; c += kLanes) {
        const FloatVec x = hn::LoadU(d, row + c);
        most = hn::IfThenElse(hn::Gt(x, most), x, most);
        nan = hn::IfThenElse(hn::IsNaN(x), x, nan);
    }
    alignas(64) float lanes[kLanes], nan_lanes[kLanes];
    hn::Store(most, d, lanes);
    hn::Store(nan, d, nan_lanes);
    for (std::int64_t i = 1; i < kLanes; ++i) {
        lanes[0] = std::max(lanes[0], lanes[i]);
        nan_lanes[0] += nan_lanes[i];
    }
    return nan_lanes[0] == 0.0f ? lanes[0] : std::numeric_limits<float>::quiet_NaN();
}

#endif

// Up to 16 rows, whose rescalings are one call of the exponential.
HWY_INLINE void softmax_rows(const SoftmaxTile& tile, std::int64_t begin, std::int64_t end) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const FloatTag d;
    alignas(64) float shift[16], rescale[16] = {};
    for (std::int64_t r = begin; r < end; ++r) {
        const float old_max = tile.row_max[r],
                    tile_max = max_of_row(tile.logits + r * tile.stride, tile.cols);
        const float new_max = old_max >= tile_max  ? old_max
                              : old_max != old_max ? old_max
                                                   : tile_max;
        shift[r - begin] = new_max == -kInfinity ? 0.0f : new_max;
        rescale[r - begin] = old_max - shift[r - begin];
        tile.row_max[r] = new_max;
    }
    exp_row(rescale, rescale, 16);
    const FloatVec factor = hn::Set(d, tile.prob_factor);
    for (std::int64_t r = begin; r < end; ++r) {
        float* row = tile.logits + r * tile.stride;
        const FloatVec shifts = hn::Set(d, shift[r - begin]);
        FloatVec sum = hn::Zero(d);
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const FloatVec prob = exp_of(hn::Sub(hn::LoadU(d, row + c), shifts));
            sum = hn::Add(sum, prob);
            hn::StoreU(hn::Mul(prob, factor), d, row + c);
        }
        tile.rescale[r] = rescale[r - begin];
        tile.row_sum[r] = tile.row_sum[r] * tile.rescale[r] + sum_of_lanes(sum);
    }
}

void softmax_tile(const SoftmaxTile& tile) {
    for (std::int64_t r = 0; r < tile.rows; r += 16)
        softmax_rows(tile, r, std::min(tile.rows, r + 16));
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

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// 16 x 16 words in registers: neighbours within 128-bit blocks, then blocks.
HWY_INLINE void transpose_square(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // r[4 g + c] now has, in block b, column 4 b + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i low_even = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                      low_odd = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                      high_even = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                      high_odd = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}

void transpose_words(const WordTranspose& p) {
    for (std::int64_t col = 0; col < p.cols; col += 16) {
        const std::int64_t cols = p.cols - col < 16 ? p.cols - col : 16;
        const __mmask16 mask = static_cast<__mmask16>((1u << cols) - 1u);
        for (std::int64_t row = 0; row < p.rows; row += 16) {
            __m512i r[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i)
                r[i] = _mm512_maskz_loadu_epi32(mask, p.from + (row + i) * p.from_stride + col);
            transpose_square(r);
            std::uint32_t* to = p.to + col * p.to_stride + row;
            if (cols == 16) {
#pragma GCC unroll 16
                for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * p.to_stride, r[i]);
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < 16; ++i)
                    if (i < cols) _mm512_storeu_si512(to + i * p.to_stride, r[i]);
            }
        }
    }
}

#else

void transpose_words(const WordTranspose& p) {
    constexpr std::int64_t kBlock = 16;  // 16 rows of 16 words are 16 lines on either side
    for (std::int64_t first = 0; first < p.cols; first += kBlock) {
        const std::int64_t end = std::min(p.cols, first + kBlock);
        for (std::int64_t r = 0; r < p.rows; ++r) {
            const std::uint32_t* from = p.from + r * p.from_stride;
            for (std::int64_t c = first; c < end; ++c) p.to[c * p.to_stride + r] = from[c];
        }
    }
}

#endif

const AttentionKernels* attention_kernels() {
    static const AttentionKernels table = {
        nullptr,
        hwy::TargetName(HWY_TARGET),
        nullptr,
        {&widen_row<Fp16>, &widen_row<Bf16>},
        {&store_product<Fp16>, &store_product<Bf16>},
        {&store_quotient<Fp16>, &store_quotient<Bf16>},
        &scale_row,
        &dot,
        {&panel_product<Fp16>, &panel_product<Bf16>},
        {&row_product<Fp16>, &row_product<Bf16>},
        &scaled_product,
        &float_product,
        &transposed_product,
        &softmax_tile,
        &gradient_tile,
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

HWY_EXPORT(attention_kernels);

// A private choice of target: Highway's global one belongs to the whole process and may be in use
// elsewhere.
AttentionKernels kernels_of(const InstructionSet& set) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
    AttentionKernels kernels = *HWY_STATIC_DISPATCH(attention_kernels)();
#else
    hwy::ChosenTarget choice;
    choice.Update(set.targets);
    AttentionKernels kernels = *HWY_DISPATCH_TABLE(attention_kernels)[choice.GetIndex()]();
#endif
    kernels.isa = set.name;
    kernels.bf16_dot = set.bf16_dot ? bf16_dot_kernels() : nullptr;
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
