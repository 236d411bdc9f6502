// The compress oracle against worked vectors, exact differentiation of its own forward, and the
// plain definition of its bound.
#include "ref/operators/nsa_compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <stdexcept>

namespace attncheck::ref {
namespace {

using Random = std::mt19937_64;
using Vector = std::vector<double>;
using Lengths = std::vector<std::int64_t>;

CompressShape one_head(Lengths lengths, std::int64_t block, std::int64_t stride) {
    CompressShape shape{std::move(lengths), 0, 1, 1, block, stride};
    for (const std::int64_t length : shape.seq_lengths) shape.total_tokens += length;
    return shape;
}

Vector forward(const CompressShape& shape, const Vector& input, const Vector& weight) {
    Vector output(shape.total_blocks() * shape.heads * shape.head_dim);
    nsa_compress<double>(shape, input, weight, output);
    return output;
}

// ---- Worked vectors -----------------------------------------------------------------------------

TEST(CompressVectors, CountsBlocks) {
    const CompressShape shape = one_head({}, 32, 16);
    const Lengths lengths{0, 20, 31, 32, 47, 48, 64, 120, 128, 144, 272};
    const Lengths blocks{0, 0, 0, 1, 1, 2, 3, 6, 7, 8, 16};
    for (std::size_t i = 0; i < lengths.size(); ++i)
        EXPECT_EQ(shape.blocks_of(lengths[i]), blocks[i]) << lengths[i];
    EXPECT_EQ(one_head({0, 120, 20, 132}, 32, 16).total_blocks(), 13);
    EXPECT_EQ(one_head({0, 128, 144}, 32, 16).total_blocks(), 15);
    EXPECT_EQ(one_head({64}, 32, 16).total_blocks(), 3);
}

TEST(CompressVectors, WithoutOverlap) {
    const CompressShape shape = one_head({5}, 2, 2);
    const Vector x{1, 2, 3, 4, 5}, w{10, 1}, dy{1, 1};
    EXPECT_EQ(forward(shape, x, w), (Vector{12, 34}));
    EXPECT_EQ(expected_nsa_compress(shape, Dtype::bf16, x, w).value, (Vector{12, 34}));
    const auto grad = expected_nsa_compress_grad(shape, Dtype::bf16, dy, x, w);
    EXPECT_EQ(grad.input_grad.value, (Vector{10, 1, 10, 1, 0}));
    EXPECT_EQ(grad.weight_grad.value, (Vector{4, 6}));
    EXPECT_EQ(grad.input_grad.bound, Vector(5, 0));
}

TEST(CompressVectors, WithOverlap) {
    const CompressShape shape = one_head({6}, 4, 2);
    const Vector x{1, 2, 3, 4, 5, 6}, w{1, 1, 1, 1}, dy{1, 2};
    EXPECT_EQ(forward(shape, x, w), (Vector{10, 18}));
    const auto grad = expected_nsa_compress_grad(shape, Dtype::fp16, dy, x, w);
    EXPECT_EQ(grad.input_grad.value, (Vector{1, 1, 3, 3, 2, 2}));
    EXPECT_EQ(grad.weight_grad.value, (Vector{7, 10, 13, 16}));
}

// ---- Generated cases ----------------------------------------------------------------------------

struct Problem {
    CompressShape shape;
    Vector input, weight, output_grad;
};

std::int64_t below(Random& random, std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

Problem draw_problem(Random& random) {
    Problem p;
    p.shape.block = 1 + below(random, 8);
    p.shape.stride = 1 + below(random, p.shape.block + 2);  // gaps between the blocks, too
    p.shape.heads = 1 + below(random, 3);
    p.shape.head_dim = 1 + below(random, 5);
    for (std::int64_t n = below(random, 5); n > 0; --n)
        p.shape.seq_lengths.push_back(below(random, 4 * p.shape.block));
    p.shape.total_tokens = 1 + below(random, 4);
    for (const std::int64_t length : p.shape.seq_lengths) p.shape.total_tokens += length;
    const std::int64_t row = p.shape.heads * p.shape.head_dim;
    p.input.resize(p.shape.total_tokens * row);
    p.weight.resize(p.shape.block * p.shape.heads);
    p.output_grad.resize(p.shape.total_blocks() * row);
    std::normal_distribution<double> normal;
    for (Vector* tensor : {&p.input, &p.weight, &p.output_grad})
        for (double& v : *tensor) v = normal(random);
    return p;
}

Vector random_like(Random& random, const Vector& tensor) {
    std::normal_distribution<double> normal;
    Vector direction(tensor.size());
    for (double& v : direction) v = normal(random);
    return direction;
}

/// A sum and the sum of the absolute values, for tolerances in units of binary64 roundoff.
struct Dot {
    double sum = 0, magnitude = 0;
    void add(const Vector& a, const Vector& b) {
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            sum += a[i] * b[i];
            magnitude += std::fabs(a[i] * b[i]);
        }
    }
};

Vector absolute(Vector v) {
    for (double& x : v) x = std::fabs(x);
    return v;
}

/// Tolerance of <dY, J r>: gamma_n(2^-53) times the sum over all monomials dY * X * W it consists
/// of.
double trilinear_tolerance(const Problem& p, const Vector& input, const Vector& weight) {
    const Vector output = forward(p.shape, absolute(input), absolute(weight));
    Dot total;
    total.add(absolute(p.output_grad), output);
    const double terms =
        static_cast<double>(p.shape.block + 1) * static_cast<double>(output.size());
    return 2 * gamma(terms + 4, 0x1p-53) * total.magnitude;
}

struct Dual {
    double value = 0, slope = 0;
    Dual& operator+=(const Dual& other) {
        value += other.value;
        slope += other.slope;
        return *this;
    }
    friend Dual operator*(const Dual& a, const Dual& b) {
        return {a.value * b.value, a.slope * b.value + a.value * b.slope};
    }
};

Vector slopes_by_dual_numbers(const Problem& p, const Vector& dx, const Vector& dw) {
    std::vector<Dual> x(dx.size()), w(dw.size()), y(p.output_grad.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = {p.input[i], dx[i]};
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = {p.weight[i], dw[i]};
    nsa_compress<Dual>(p.shape, x, w, y);
    Vector slopes;
    for (const Dual& v : y) slopes.push_back(v.slope);
    return slopes;
}

/// Im f(x + i h r) / h: nothing is subtracted, and h^2 is below every binary64 number.
Vector slopes_by_complex_step(const Problem& p, const Vector& dx, const Vector& dw) {
    constexpr double kStep = 0x1p-400;
    std::vector<std::complex<double>> x(dx.size()), w(dw.size()), y(p.output_grad.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = {p.input[i], kStep * dx[i]};
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = {p.weight[i], kStep * dw[i]};
    nsa_compress<std::complex<double>>(p.shape, x, w, y);
    Vector slopes;
    for (const std::complex<double>& v : y) slopes.push_back(v.imag() / kStep);
    return slopes;
}

// <dY, J r> = <dX, r_x> + <dW, r_w> along random directions, J from two exact differentiations.
TEST(CompressGradient, IsTheDerivativeOfTheForward) {
    Random random(3);
    double worst = 0;
    for (int i = 0; i < 1000; ++i) {
        const Problem p = draw_problem(random);
        const auto grad =
            expected_nsa_compress_grad(p.shape, Dtype::fp16, p.output_grad, p.input, p.weight);
        const Vector dx = random_like(random, p.input), dw = random_like(random, p.weight);
        Dot claimed;
        claimed.add(grad.input_grad.value, dx);
        claimed.add(grad.weight_grad.value, dw);
        const double tolerance =
            trilinear_tolerance(p, dx, p.weight) + trilinear_tolerance(p, p.input, dw);
        for (const auto& slopes : {slopes_by_dual_numbers, slopes_by_complex_step}) {
            Dot actual;
            actual.add(p.output_grad, slopes(p, dx, dw));
            const double error = std::fabs(actual.sum - claimed.sum);
            ASSERT_LE(error, tolerance) << "case " << i;
            if (error > 0) worst = std::max(worst, error / tolerance);
        }
    }
    RecordProperty("worst_ratio", std::to_string(worst));
}

// Every single element, by unit directions.
TEST(CompressGradient, IsTheDerivativeElementByElement) {
    Random random(5);
    for (int i = 0; i < 60; ++i) {
        const Problem p = draw_problem(random);
        const auto grad =
            expected_nsa_compress_grad(p.shape, Dtype::fp16, p.output_grad, p.input, p.weight);
        const auto check = [&](const Vector& claimed, bool of_input) {
            for (std::size_t k = 0; k < claimed.size(); ++k) {
                Vector dx(p.input.size()), dw(p.weight.size());
                (of_input ? dx : dw)[k] = 1;
                Dot actual;
                actual.add(p.output_grad, slopes_by_dual_numbers(p, dx, dw));
                const double tolerance = of_input ? trilinear_tolerance(p, dx, p.weight)
                                                  : trilinear_tolerance(p, p.input, dw);
                ASSERT_LE(std::fabs(actual.sum - claimed[k]), tolerance) << i << ' ' << k;
            }
        };
        check(grad.input_grad.value, true);
        check(grad.weight_grad.value, false);
    }
}

// The forward is bilinear: <dX, X> = <dW, W> = <dY, Y>.
TEST(CompressGradient, IsAdjointToTheForward) {
    Random random(9);
    for (int i = 0; i < 1000; ++i) {
        const Problem p = draw_problem(random);
        const auto grad =
            expected_nsa_compress_grad(p.shape, Dtype::fp16, p.output_grad, p.input, p.weight);
        Dot through_input, through_weight, through_output;
        through_input.add(grad.input_grad.value, p.input);
        through_weight.add(grad.weight_grad.value, p.weight);
        through_output.add(p.output_grad, forward(p.shape, p.input, p.weight));
        const double tolerance = 2 * trilinear_tolerance(p, p.input, p.weight);
        ASSERT_LE(std::fabs(through_input.sum - through_output.sum), tolerance) << i;
        ASSERT_LE(std::fabs(through_weight.sum - through_output.sum), tolerance) << i;
    }
}

// ---- Bounds -------------------------------------------------------------------------------------

/// The oracle's tensors once more, one ProductSum::add per product, in the order of the definition.
struct Plain {
    std::vector<ProductSum> output, input_grad, weight_grad;

    Plain(const Problem& p, Dtype type)
        : output(p.output_grad.size()), input_grad(p.input.size()), weight_grad(p.weight.size()) {
        for (auto* sums : {&output, &input_grad, &weight_grad})
            for (ProductSum& sum : *sums) sum.least = min_normal(type);
        const std::int64_t heads = p.shape.heads, dim = p.shape.head_dim;
        for_each_block(p.shape, [&](std::int64_t j, std::int64_t token) {
            for (std::int64_t r = 0; r < p.shape.block; ++r)
                for (std::int64_t n = 0; n < heads; ++n)
                    for (std::int64_t c = 0; c < dim; ++c) {
                        const std::int64_t x = ((token + r) * heads + n) * dim + c;
                        const std::int64_t y = (j * heads + n) * dim + c, w = r * heads + n;
                        output[y].add(p.weight[w], p.input[x]);
                        input_grad[x].add(p.weight[w], p.output_grad[y]);
                        weight_grad[w].add(p.output_grad[y], p.input[x]);
                    }
        });
    }
};

void expect_same(const std::vector<ProductSum>& sums, Dtype type, const RoundingClass& rounding,
                 const ExpectedTensor& got) {
    ASSERT_EQ(got.size(), sums.size());
    ExpectedTensor plain(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) finish(sums[i], {type, rounding}, plain, i);
    EXPECT_EQ(got.value, plain.value);
    EXPECT_EQ(got.bound, plain.bound);
    EXPECT_EQ(got.overflow, plain.overflow);
}

TEST(CompressBounds, AreThoseOfThePlainSums) {
    Random random(21);
    const char* classes[] = {"default", "ftz=bf16", "acc=half", "acc=fp64 ftz=bf16", "ftz=all", "acc=half ftz=all"};
    for (int i = 0; i < 400; ++i) {
        Problem p = draw_problem(random);
        const Dtype type = i % 2 ? Dtype::bf16 : Dtype::fp16;
        const double scale = i % 3 == 0 ? 0x1p-124 : i % 3 == 1 ? 300 : 1;
        for (Vector* tensor : {&p.input, &p.weight, &p.output_grad}) {
            const double own_scale = random() % 2 ? scale : 1;
            for (double& v : *tensor) {
                v = decode(type, encode(type, random() % 9 ? v * own_scale : v));
                if (random() % 11 == 0) v = 0;
            }
        }
        const RoundingClass rounding = parse_rounding_class(classes[i / 2 % 6]);
        const Plain plain(p, type);
        const auto grad =
            expected_nsa_compress_grad(p.shape, {type, rounding}, p.output_grad, p.input, p.weight);
        expect_same(plain.output, type, rounding,
                    expected_nsa_compress(p.shape, {type, rounding}, p.input, p.weight));
        expect_same(plain.input_grad, type, rounding, grad.input_grad);
        expect_same(plain.weight_grad, type, rounding, grad.weight_grad);
    }
}

// Tail tokens, short sequences and rows beyond the last length: exactly +0, even when W is not
// finite.
TEST(CompressBounds, DemandPositiveZeroWhereNoBlockReaches) {
    CompressShape shape = one_head({5, 1, 3}, 2, 2);
    shape.total_tokens = 11;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Vector x(11, 1), w{nan, -1}, dy{1, 1, 1};
    const auto grad = expected_nsa_compress_grad(shape, Dtype::bf16, dy, x, w);
    for (const std::size_t token : {4, 5, 8, 9, 10}) {
        EXPECT_EQ(grad.input_grad.value[token], 0) << token;
        EXPECT_FALSE(std::signbit(grad.input_grad.value[token])) << token;
        EXPECT_EQ(grad.input_grad.bound[token], 0) << token;
    }
    EXPECT_TRUE(std::isnan(grad.input_grad.value[6]));
    EXPECT_EQ(grad.input_grad.value[7], -1);
    EXPECT_EQ(grad.weight_grad.value, (Vector{3, 3}));
}

// NaN and infinity reach the blocks that read them, in their channel only; zero does not hide them.
TEST(CompressBounds, ConfineNonFiniteInputs) {
    CompressShape shape{{6}, 6, 1, 2, 4, 2};
    Vector x(12, 1);
    x[1] = std::numeric_limits<double>::infinity();
    const Vector w{0, 1, 1, 1};
    const ExpectedTensor y = expected_nsa_compress(shape, Dtype::fp16, x, w);
    EXPECT_EQ(y.value[0], 3);
    EXPECT_TRUE(std::isnan(y.value[1]));
    EXPECT_EQ(y.value[2], 3);
    EXPECT_EQ(y.value[3], 3);
}

TEST(CompressShapes, WithoutAnyBlockGiveZeroGradients) {
    const CompressShape shape = one_head({3, 0, 3}, 4, 2);
    const auto grad =
        expected_nsa_compress_grad(shape, Dtype::fp16, {}, Vector(6, 7), Vector(4, 7));
    EXPECT_EQ(grad.input_grad.value, Vector(6, 0));
    EXPECT_EQ(grad.weight_grad.value, Vector(4, 0));
    EXPECT_EQ(expected_nsa_compress(shape, Dtype::fp16, Vector(6), Vector(4)).size(), 0u);
}

template <class Call>
std::string refusal(Call&& call) {
    try {
        call();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "accepted";
}

TEST(CompressShapes, NameTheSizesThatDisagree) {
    const CompressShape shape = one_head({4}, 2, 2);
    const Vector x(4), w(2), dy(2);
    EXPECT_EQ(refusal([&] { expected_nsa_compress(shape, Dtype::fp16, Vector(5), w); }),
              "nsa_compress: input has 5 elements, total_tokens * heads * head_dim is 4");
    EXPECT_EQ(refusal([&] { expected_nsa_compress(shape, Dtype::fp16, x, x); }),
              "nsa_compress: weight has 4 elements, block * heads is 2");
    EXPECT_EQ(refusal([&] { expected_nsa_compress_grad(shape, Dtype::fp16, w, x, x); }),
              "nsa_compress: weight has 4 elements, block * heads is 2");
    EXPECT_EQ(refusal([&] { expected_nsa_compress_grad(shape, Dtype::fp16, x, x, w); }),
              "nsa_compress: output_grad has 4 elements, total_blocks * heads * head_dim is 2");
    CompressShape short_pack = shape;
    short_pack.total_tokens = 3;
    EXPECT_EQ(refusal([&] { expected_nsa_compress(short_pack, Dtype::fp16, Vector(3), w); }),
              "nsa_compress: seq_lengths sum to 4, total_tokens is 3");
    CompressShape no_stride = shape;
    no_stride.stride = 0;
    EXPECT_NE(refusal([&] { expected_nsa_compress(no_stride, Dtype::fp16, x, w); }), "accepted");
}

}  // namespace
}  // namespace attncheck::ref
