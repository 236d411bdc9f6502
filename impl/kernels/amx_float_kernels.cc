#include "impl/kernels/amx_float_kernels.h"

#include "impl/kernels/amx_kernels.h"
#include "impl/kernels/wide_intrinsics.h"

#if defined(ATTNCHECK_IMPL_HAVE_AMX)

#include <algorithm>
#include <vector>

HWY_PUSH_ATTRIBUTES(ATTNCHECK_IMPL_AVX512_BF16)

namespace attncheck::impl {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr int kParts = 3;

/// Which numbers have parts; the others count as 0. Zero always has.
struct PlainRange {
    float least, end;  ///< magnitudes
};
constexpr PlainRange kLogitElements{0x1p-40f, 0x1p20f}, kSumElements{0x1p-30f, 0x1p20f},
    kWeights{0, 0x1p20f};

// No template of the library in here: its code, shared by the whole program, would be of this
// target.

/// Lanes of a vector that are not plain.
__mmask16 outside(__m512 numbers, const PlainRange& range) {
    const __m512 magnitude = _mm512_abs_ps(numbers);
    const __mmask16 not_zero =
        _mm512_cmp_ps_mask(magnitude, _mm512_setzero_ps(), _CMP_NEQ_UQ);  // NaN too
    const __mmask16 inside = static_cast<__mmask16>(
        _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(range.least), _CMP_GE_OQ) &
        _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(range.end), _CMP_LT_OQ));
    return static_cast<__mmask16>(not_zero & ~inside);
}

__mmask16 first(std::int64_t lanes) {
    return static_cast<__mmask16>(lanes >= kLanes ? 0xffffu : (1u << lanes) - 1u);
}

// `left` is how many numbers there are, which may be none.
__m512 load_plain(const float* from, std::int64_t left, const PlainRange& range, float scale,
                  unsigned& lost) {
    if (left <= 0) return _mm512_setzero_ps();
    const __m512 numbers = _mm512_maskz_loadu_ps(first(left), from);
    const __mmask16 other = outside(numbers, range);
    lost |= other;
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~other), numbers, _mm512_set1_ps(scale));
}

__m512 widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// Where parts go: word `at` of each, parts being `part_words` apart.
struct PartWords {
    std::uint32_t* words;
    std::int64_t part_words;
    int count;  ///< grows to the parts that are not 0 everywhere
};

// Parts of 32 numbers. As pairs of neighbours they are in order; otherwise the low halves of the
// words come from the first vector, the high ones from the second.
template <bool kInterleave>
void store_parts(__m512 low, __m512 high, std::int64_t at, std::int64_t left, PartWords& parts) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __mmask16 mask = first(left);
    std::uint32_t* to = parts.words + at;
    for (int i = 0; i < kParts; ++i, to += parts.part_words) {
        const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi32(to, mask,
                                 kInterleave ? _mm512_permutexvar_epi16(order, halves) : halves);
        if (i >= parts.count && _mm512_test_epi32_mask(halves, halves) != 0) parts.count = i + 1;
        low = _mm512_sub_ps(low, widen(_mm512_castsi512_si256(halves)));
        high = _mm512_sub_ps(high, widen(_mm512_extracti64x4_epi64(halves, 1)));
    }
}

// A row as pairs of neighbours; returns whether it has numbers that are not plain.
bool split_row(const float* row, std::int64_t cols, const PlainRange& range, float scale,
               std::int64_t at, PartWords& parts) {
    unsigned lost = 0;
    for (std::int64_t c = 0; c < cols; c += 2 * kLanes) {
        const __m512 low = load_plain(row + c, cols - c, range, scale, lost),
                     high = load_plain(row + c + kLanes, cols - c - kLanes, range, scale, lost);
        store_parts<false>(low, high, at + c / 2, (cols - c + 1) / 2, parts);
    }
    return lost != 0;
}

// Two rows, of which the second may be missing (null), as pairs of rows. Marks columns that have
// numbers that are not plain; returns whether there are any.
bool split_two_rows(const float* even, const float* odd, std::int64_t cols, const PlainRange& range,
                    float scale, std::int64_t at, PartWords& parts, std::uint8_t* col_lost) {
    bool any = false;
    for (std::int64_t c = 0; c < cols; c += kLanes) {
        unsigned lost = 0;
        const __m512 low = load_plain(even + c, cols - c, range, scale, lost),
                     high = odd == nullptr ? _mm512_setzero_ps()
                                           : load_plain(odd + c, cols - c, range, scale, lost);
        store_parts<true>(low, high, at + c, cols - c, parts);
        any = any || lost != 0;
        for (int lane = 0; lost >> lane != 0; ++lane)
            if ((lost >> lane & 1) != 0) col_lost[c + lane] = 1;
    }
    return any;
}

// Numbers of a row that are plain, and the others; 0 elsewhere.
void separate_row(const float* row, std::int64_t cols, const PlainRange& range, float* plain,
                  float* rest) {
    for (std::int64_t c = 0; c < cols; c += kLanes) {
        const __mmask16 mask = first(cols - c);
        const __m512 numbers = _mm512_maskz_loadu_ps(mask, row + c);
        const __mmask16 other = outside(numbers, range);
        _mm512_mask_storeu_ps(plain + c, mask,
                              _mm512_maskz_mov_ps(static_cast<__mmask16>(~other), numbers));
        _mm512_mask_storeu_ps(rest + c, mask, _mm512_maskz_mov_ps(other, numbers));
    }
}

}  // namespace
}  // namespace attncheck::impl

HWY_POP_ATTRIBUTES

namespace attncheck::impl {
namespace {

/// A row-major matrix of fp32.
struct FloatMatrix {
    const float* data;
    std::int64_t stride, rows, cols;

    const float* row(std::int64_t r) const { return data + r * stride; }
};

/// The parts of a matrix as pairs of bf16 numbers, and where it has numbers that are not plain.
class Parts {
public:
    /// Pairs of neighbours in a row: [rows, (cols + 1) / 2] words.
    void split_rows(const FloatMatrix& matrix, const PlainRange& range, float scale) {
        PartWords parts = start(matrix.rows, (matrix.cols + 1) / 2);
        row_lost_.assign(static_cast<std::size_t>(matrix.rows), 0);
        for (std::int64_t r = 0; r < matrix.rows; ++r) {
            if (!split_row(matrix.row(r), matrix.cols, range, scale, r * width_, parts)) continue;
            row_lost_[static_cast<std::size_t>(r)] = 1;
            any_lost_ = true;
        }
        count_ = parts.count;
    }

    /// Pairs of neighbours in a column: [(rows + 1) / 2, cols] words.
    void split_row_pairs(const FloatMatrix& matrix, const PlainRange& range, float scale) {
        PartWords parts = start((matrix.rows + 1) / 2, matrix.cols);
        col_lost_.assign(static_cast<std::size_t>(matrix.cols), 0);
        for (std::int64_t r = 0; r < matrix.rows; r += 2) {
            const float* odd = r + 1 < matrix.rows ? matrix.row(r + 1) : nullptr;
            if (split_two_rows(matrix.row(r), odd, matrix.cols, range, scale, r / 2 * width_, parts,
                               col_lost_.data()))
                any_lost_ = true;
        }
        count_ = parts.count;
    }

    const std::uint32_t* part(int i) const { return words_.data() + i * part_words_; }
    std::int64_t width() const { return width_; }
    /// Parts up to the last that is not 0 everywhere; at least one.
    int count() const { return count_; }
    bool any_lost() const { return any_lost_; }
    bool row_lost(std::int64_t r) const { return row_lost_[static_cast<std::size_t>(r)] != 0; }
    bool col_lost(std::int64_t c) const { return col_lost_[static_cast<std::size_t>(c)] != 0; }

private:
    PartWords start(std::int64_t rows, std::int64_t width) {
        width_ = width;
        part_words_ = rows * width;
        words_.resize(static_cast<std::size_t>(kParts * part_words_));
        any_lost_ = false;
        return {words_.data(), part_words_, 1};
    }

    std::int64_t width_ = 0, part_words_ = 0;
    int count_ = 1;
    bool any_lost_ = false;
    std::vector<std::uint32_t> words_;
    std::vector<std::uint8_t> row_lost_, col_lost_;
};

/// Numbers of a matrix that are plain, and the others; 0 elsewhere. Both with stride cols.
void separate(const FloatMatrix& matrix, const PlainRange& range, std::vector<float>& plain,
              std::vector<float>& rest) {
    plain.resize(static_cast<std::size_t>(matrix.rows * matrix.cols));
    rest.resize(plain.size());
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
        separate_row(matrix.row(r), matrix.cols, range, plain.data() + r * matrix.cols,
                     rest.data() + r * matrix.cols);
    }
}

/// The vector kernels that the products below stand in for.
const AttentionKernels& vectors() {
    static const AttentionKernels kernels = find_attention_kernels("avx512").value();
    return kernels;
}

thread_local Parts left_parts, right_parts;

/// All products of parts, smallest first; `whole` has everything but the words of the operands.
void multiply_parts(const Bf16DotKernels& unit, PairProduct whole) {
    for (int sum = kParts - 1; sum >= 0; --sum) {
        for (int i = 0; i <= sum; ++i) {
            if (i >= left_parts.count() || sum - i >= right_parts.count()) continue;
            whole.left = left_parts.part(i);
            whole.right = right_parts.part(sum - i);
            unit.product(whole);
            whole.accumulate = true;
        }
    }
}

template <const Bf16DotKernels* (*kUnit)()>
void scaled_product(const ScaledProduct& p) {
    left_parts.split_rows({p.left, p.left_stride, p.rows, p.depth}, kLogitElements, 1.0f);
    right_parts.split_row_pairs({p.right, p.right_stride, p.depth, p.cols}, kLogitElements, 1.0f);
    const std::int64_t pairs = (p.depth + 1) / 2;
    multiply_parts(*kUnit(), {nullptr, pairs, 1, p.rows, nullptr, p.cols, pairs, p.cols, false,
                              p.factor, p.out, p.out_stride});
    if (!left_parts.any_lost() && !right_parts.any_lost()) return;
    std::vector<float> exact(static_cast<std::size_t>(p.rows * p.cols));
    ScaledProduct other = p;
    other.out = exact.data();
    other.out_stride = p.cols;
    vectors().scaled_product(other);
    for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.cols; ++c) {
            if (left_parts.row_lost(r) || right_parts.col_lost(c))
                p.out[r * p.out_stride + c] = exact[static_cast<std::size_t>(r * p.cols + c)];
        }
    }
}

// What the parts have left out: weights that are not plain with all elements, and plain weights
// with the elements that are not. `multiply(weights, stride, elements, stride)` adds to the result.
template <class Multiply>
void add_lost(const FloatMatrix& weights, const FloatMatrix& elements, const Multiply& multiply) {
    std::vector<float> plain, rest;
    const float* plain_weights = weights.data;
    std::int64_t stride = weights.stride;
    if (left_parts.any_lost()) {
        separate(weights, kWeights, plain, rest);
        multiply(rest.data(), weights.cols, elements.data, elements.stride);
        plain_weights = plain.data();
        stride = weights.cols;
    }
    if (!right_parts.any_lost()) return;
    std::vector<float> plain_elements, rest_elements;
    separate(elements, kSumElements, plain_elements, rest_elements);
    multiply(plain_weights, stride, rest_elements.data(), elements.cols);
}

template <const Bf16DotKernels* (*kUnit)()>
void float_product(const FloatProduct& p) {
    const FloatMatrix weights{p.left, p.left_stride, p.rows, p.depth},
        elements{p.right, p.right_stride, p.depth, p.cols};
    left_parts.split_rows(weights, kWeights, kWeightScale);
    right_parts.split_row_pairs(elements, kSumElements, 1.0f);
    const std::int64_t pairs = (p.depth + 1) / 2;
    multiply_parts(*kUnit(), {nullptr, pairs, 1, p.rows, nullptr, p.cols, pairs, p.cols,
                              p.accumulate, 1.0f / kWeightScale, p.out, p.out_stride});
    add_lost(weights, elements,
             [&](const float* left, std::int64_t left_stride, const float* right,
                 std::int64_t right_stride) {
                 vectors().float_product({left, left_stride, p.rows, right, right_stride, p.depth,
                                          p.cols, true, p.out, p.out_stride});
             });
}

template <const Bf16DotKernels* (*kUnit)()>
void transposed_product(const TransposedProduct& p) {
    const FloatMatrix weights{p.left, p.left_stride, p.depth, p.rows},
        elements{p.right, p.right_stride, p.depth, p.cols};
    left_parts.split_row_pairs(weights, kWeights, kWeightScale);
    right_parts.split_row_pairs(elements, kSumElements, 1.0f);
    multiply_parts(*kUnit(),
                   {nullptr, 1, left_parts.width(), p.rows, nullptr, p.cols, (p.depth + 1) / 2,
                    p.cols, true, 1.0f / kWeightScale, p.out, p.out_stride});
    add_lost(weights, elements,
             [&](const float* left, std::int64_t left_stride, const float* right,
                 std::int64_t right_stride) {
                 vectors().transposed_product({left, left_stride, p.rows, right, right_stride,
                                               p.depth, p.cols, p.out, p.out_stride});
             });
}

template <const Bf16DotKernels* (*kUnit)()>
void replace(AttentionKernels& kernels) {
    kernels.scaled_product = &scaled_product<kUnit>;
    kernels.float_product = &float_product<kUnit>;
    kernels.transposed_product = &transposed_product<kUnit>;
}

}  // namespace

void use_matrix_unit_for_floats(AttentionKernels& kernels) {
    if (kernels.bf16_dot == nullptr) return;
    if (kernels.bf16_dot == amx_kernels()) replace<&amx_kernels>(kernels);
    if (kernels.bf16_dot == emulated_amx_kernels()) replace<&emulated_amx_kernels>(kernels);
}

}  // namespace attncheck::impl

#else

namespace attncheck::impl {
void use_matrix_unit_for_floats(AttentionKernels&) {}
}  // namespace attncheck::impl

#endif
