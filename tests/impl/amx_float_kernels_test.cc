// Products of fp32 matrices as products of their bf16 parts, on the emulated matrix unit.
#include "impl/kernels/amx_float_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "impl/kernels/half_formats.h"

namespace attncheck::impl {
namespace {

struct Matrix {
    std::int64_t rows, cols, stride;
    std::vector<float> data;

    Matrix(std::int64_t r, std::int64_t c, std::int64_t padding)
        : rows(r), cols(c), stride(c + padding), data(static_cast<std::size_t>(r * stride)) {}
    float& at(std::int64_t r, std::int64_t c) {
        return data[static_cast<std::size_t>(r * stride + c)];
    }
    float at(std::int64_t r, std::int64_t c) const {
        return data[static_cast<std::size_t>(r * stride + c)];
    }
};

class AmxFloatKernelsTest : public testing::Test {
protected:
    void SetUp() override {
        const auto found = find_attention_kernels("amx_emulated");
        if (!found) GTEST_SKIP() << "no bf16 instructions on this machine";
        kernels_ = *found;
        vectors_ = *find_attention_kernels("avx512");
        ASSERT_NE(kernels_.float_product, vectors_.float_product);
    }

    // Numbers of fp32, or of fp16 widened.
    void fill(Matrix& matrix, bool fp16) {
        for (float& number : matrix.data) {
            number = normal_(random_);
            if (fp16) number = widen_fp16(narrow_fp16(number));
        }
    }

    // out = 3 where something is added to it.
    static Matrix result(std::int64_t rows, std::int64_t cols, float value) {
        Matrix out(rows, cols, 16);
        out.data.assign(out.data.size(), value);
        return out;
    }

    void scaled(const AttentionKernels& table, const Matrix& left, const Matrix& right,
                Matrix& out) {
        table.scaled_product({left.data.data(), left.stride, left.rows, right.data.data(),
                              right.stride, right.rows, right.cols, 0.3f, out.data.data(),
                              out.stride});
    }

    AttentionKernels kernels_{}, vectors_{};
    std::mt19937 random_{7};
    std::normal_distribution<float> normal_;
};

// Error of a sum of n products: one rounding each and one an addition, and a few for the parts.
double tolerance(std::int64_t depth, double magnitude) {
    return static_cast<double>(2 * depth + 16) * 0x1p-24 * magnitude;
}

// left[m, k] or, transposed, left[k, m].
void expect_products(const Matrix& left, bool transposed, const Matrix& right, const Matrix& out,
                     double factor, double before) {
    const std::int64_t depth = right.rows, rows = transposed ? left.cols : left.rows;
    for (std::int64_t m = 0; m < rows; ++m) {
        for (std::int64_t n = 0; n < right.cols; ++n) {
            double sum = 0, magnitude = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
                const double term =
                    double{transposed ? left.at(k, m) : left.at(m, k)} * right.at(k, n);
                sum += term;
                magnitude += std::fabs(term);
            }
            ASSERT_NEAR(out.at(m, n), before + factor * sum,
                        tolerance(depth, factor * magnitude + before))
                << m << " " << n << " of depth " << depth;
        }
    }
}

TEST_F(AmxFloatKernelsTest, ProductsAreAsExactAsThoseOfVectors) {
    for (const bool fp16 : {false, true}) {
        for (const std::int64_t rows : {1, 15, 32, 47}) {
            for (const std::int64_t depth : {1, 2, 31, 32, 65, 192}) {
                for (const std::int64_t cols : {16, 64}) {
                    Matrix left(rows, depth, 5), right(depth, cols, 16), transposed(depth, rows, 3),
                        out = result(rows, cols, 3.0f);
                    for (Matrix* matrix : {&left, &right, &transposed}) fill(*matrix, fp16);
                    scaled(kernels_, left, right, out);
                    expect_products(left, false, right, out, 0.3, 0);
                    for (const bool accumulate : {true, false}) {
                        out = result(rows, cols, 3.0f);
                        kernels_.float_product({left.data.data(), left.stride, rows,
                                                right.data.data(), right.stride, depth, cols,
                                                accumulate, out.data.data(), out.stride});
                        expect_products(left, false, right, out, 1, accumulate ? 3 : 0);
                    }
                    out = result(rows, cols, 3.0f);
                    kernels_.transposed_product({transposed.data.data(), transposed.stride, rows,
                                                 right.data.data(), right.stride, depth, cols,
                                                 out.data.data(), out.stride});
                    expect_products(transposed, true, right, out, 1, 3);
                    for (std::int64_t m = 0; m < rows; ++m)  // and nothing beyond the columns
                        ASSERT_EQ(out.at(m, cols), 3.0f);
                }
            }
        }
    }
}

// What the unit would flush or overflow takes the way of the vectors; what is beside it keeps its
// bits.
TEST_F(AmxFloatKernelsTest, NumbersThatHaveNoPartsConcernOnlyTheirOwnProducts) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float odd :
         {0x1p-41f, 0x1p-140f, 0x1p20f, 1e30f, infinity, std::numeric_limits<float>::quiet_NaN()}) {
        constexpr std::int64_t kRows = 20, kDepth = 33, kCols = 48;
        Matrix left(kRows, kDepth, 0), right(kDepth, kCols, 0), plain = result(kRows, kCols, 0),
                                                                out = plain, expected = plain;
        fill(left, false);
        fill(right, false);
        scaled(kernels_, left, right, plain);
        left.at(17, 32) = odd;
        right.at(5, 40) = odd;
        scaled(kernels_, left, right, out);
        scaled(vectors_, left, right, expected);
        for (std::int64_t m = 0; m < kRows; ++m) {
            for (std::int64_t n = 0; n < kCols; ++n) {
                const float want = m == 17 || n == 40 ? expected.at(m, n) : plain.at(m, n);
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(out.at(m, n))) << odd << " " << m << " " << n;
                } else {
                    ASSERT_EQ(out.at(m, n), want) << odd << " " << m << " " << n;
                }
            }
        }
    }
}

// The same for sums: elements that are finite, weights of any kind.
TEST_F(AmxFloatKernelsTest, SumsCountEveryWeightAndElement) {
    constexpr std::int64_t kRows = 20, kDepth = 33, kCols = 48;
    for (const float weight : {1.0f, 0x1p-149f, -0x1p-100f, 0x1p20f, 1e30f}) {
        for (const float element : {1.0f, 0x1p-31f, 0x1p-149f, 0x1p20f, -1e6f}) {
            Matrix left(kRows, kDepth, 0), right(kDepth, kCols, 0),
                out = result(kRows, kCols, 0), transposed(kDepth, kRows, 0), other = out;
            left.at(19, 32) = transposed.at(32, 19) = weight;
            right.at(32, 47) = element;
            right.at(32, 3) = 1.5f;
            kernels_.float_product({left.data.data(), left.stride, kRows, right.data.data(),
                                    right.stride, kDepth, kCols, true, out.data.data(),
                                    out.stride});
            kernels_.transposed_product({transposed.data.data(), transposed.stride, kRows,
                                         right.data.data(), right.stride, kDepth, kCols,
                                         other.data.data(), other.stride});
            for (std::int64_t m = 0; m < kRows; ++m) {
                for (std::int64_t n = 0; n < kCols; ++n) {
                    const float want = m != 19   ? 0
                                       : n == 47 ? weight * element
                                       : n == 3  ? weight * 1.5f
                                                 : 0;
                    ASSERT_EQ(out.at(m, n), want) << weight << " " << element << " " << n;
                    ASSERT_EQ(other.at(m, n), want) << weight << " " << element << " " << n;
                }
            }
        }
    }
}

}  // namespace
}  // namespace attncheck::impl
