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
HWY_INLINE const float* left_at(const TransposedProduct& p, std::int64_t row, std::int64_t k) {
    return p.left + k * p.left_stride + row;
}

HWY_INLINE void store_sum(const PanelProduct& p, FloatVec sum, float* out) {
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
void float_product(const FloatProduct& p) { multiply<MatrixOperand, Fp32>(p); }
void transposed_product(const TransposedProduct& p) { multiply<MatrixOperand, Fp32>(p); }

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. The Taylor polynomial of degree 7 leaves
// out less than r^8 / 8! < 2^-27. Scaling in two steps reaches subnormal results and 2^128.
HWY_INLINE FloatVec exp_of(FloatVec x) {
    const FloatTag d;
    const SignedWordTag di;
    // e^-104 rounds to 0 and e^89 to infinity. Written so that NaN becomes a number here.
    const FloatVec low = hn::Set(d, -104.0f), high = hn::Set(d, 89.0f);
    FloatVec bounded = hn::IfThenElse(hn::Gt(x, low), x, low);
    bounded = hn::IfThenElse(hn::Lt(bounded, high), bounded, high);
    const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
    const FloatVec minus_n = hn::Neg(hn::ConvertTo(d, n));
    // ln 2 in two parts; the first has 9 bits, so that its product with n is exact.
    FloatVec r = hn::MulAdd(minus_n, hn::Set(d, 0x1.63p-1f), bounded);
    r = hn::MulAdd(minus_n, hn::Set(d, -0x1.bd0105c610ca8p-13f), r);
    FloatVec sum = hn::Set(d, 1.0f / 5040);
    for (const float coefficient :
         {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        sum = hn::MulAdd(sum, r, hn::Set(d, coefficient));
    }
    const auto half_n = hn::ShiftRight<1>(n);
    const auto power_of_two = [&](auto exponent) HWY_ATTR {
        return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
    };
    sum = hn::Mul(hn::Mul(sum, power_of_two(half_n)), power_of_two(hn::Sub(n, half_n)));
    return hn::IfThenElse(hn::IsNaN(x), x, sum);
}

void exp_row(const float* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes)
        hn::StoreU(exp_of(hn::LoadU(FloatTag(), from + i)), FloatTag(), to + i);
}

HWY_INLINE float exp_of_scalar(float x) { return hn::GetLane(exp_of(hn::Set(FloatTag(), x))); }

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

void softmax_tile(const SoftmaxTile& tile) {
    const FloatTag d;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* row = tile.logits + r * tile.stride;
        const float old_max = tile.row_max[r], tile_max = max_of_row(row, tile.cols);
        const float new_max = old_max >= tile_max  ? old_max
                              : old_max != old_max ? old_max
                                                   : tile_max;
        const float shift = new_max == -std::numeric_limits<float>::infinity() ? 0.0f : new_max;
        const FloatVec shifts = hn::Set(d, shift), factor = hn::Set(d, tile.prob_factor);
        FloatVec sum = hn::Zero(d);
        for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
            const FloatVec prob = exp_of(hn::Sub(hn::LoadU(d, row + c), shifts));
            sum = hn::Add(sum, prob);
            hn::StoreU(hn::Mul(prob, factor), d, row + c);
        }
        tile.rescale[r] = exp_of_scalar(old_max - shift);
        tile.row_sum[r] = tile.row_sum[r] * tile.rescale[r] + sum_of_lanes(sum);
        tile.row_max[r] = new_max;
    }
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

const AttentionKernels* attention_kernels() {
    static const AttentionKernels table = {
        hwy::TargetName(HWY_TARGET),
        {&widen_row<Fp16>, &widen_row<Bf16>},
        {&store_product<Fp16>, &store_product<Bf16>},
        {&store_quotient<Fp16>, &store_quotient<Bf16>},
        &scale_row,
        &dot,
        {&panel_product<Fp16>, &panel_product<Bf16>},
        {&row_product<Fp16>, &row_product<Bf16>},
        &float_product,
        &transposed_product,
        &softmax_tile,
        &gradient_tile,
        &exp_row,
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
const AttentionKernels* best_kernels([[maybe_unused]] std::int64_t targets) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
    return HWY_STATIC_DISPATCH(attention_kernels)();
#else
    hwy::ChosenTarget choice;
    choice.Update(targets);
    return HWY_DISPATCH_TABLE(attention_kernels)[choice.GetIndex()]();
#endif
}

}  // namespace

const AttentionKernels& default_attention_kernels() {
    static const AttentionKernels& kernels = *best_kernels(default_targets());
    return kernels;
}

const AttentionKernels* find_attention_kernels(const char* isa) {
    const std::int64_t targets = find_targets(isa);
    return targets == 0 ? nullptr : best_kernels(targets);
}

}  // namespace attncheck::impl
#endif  // HWY_ONCE
