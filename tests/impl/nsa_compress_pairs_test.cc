// Products of bf16 pairs: the order of their sums, and numbers that the instruction would lose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "impl/kernels/bf16_dot_kernels.h"
#include "impl/operators/nsa_compress/nsa_compress.h"
#include "impl/kernels/nsa_compress_pair_kernels.h"
#include "impl/arguments/strided_rows.h"
#include "tests/impl/nsa_compress_problem.h"

namespace attncheck::impl {
namespace {

using namespace compress_problem;

class NsaCompressPairsTest : public testing::Test {
protected:
    void SetUp() override {
        if (compress_pair_kernels() == nullptr) GTEST_SKIP() << "no bf16 dot product here";
    }
    static KernelTable kernels() { return *find_kernels("avx512_bf16"); }
};

// What a sum of pairs is, nothing of it lost: the odd partner first.
class PairSum {
public:
    void add(float even, float even_factor, float odd, float odd_factor) {
        sum_ = std::fma(even, even_factor, std::fma(odd, odd_factor, sum_));
    }
    std::uint16_t rounded() const { return narrow_bf16(sum_); }

private:
    float sum_ = 0.0f;
};

const std::vector<Shape>& shapes() {
    static const std::vector<Shape> all = {
        {16, 1, 16, 16, 16, {16}},
        {300, 3, 48, 48, 32, {120, 140, 140, 272}},
        {400, 2, 256, 128, 16, {400}},  // eight open windows
        {200, 5, 112, 64, 48, {17, 200}},
        {700, 2, 80, 96, 16, {300, 700}},         // six
        {500, 2, 144, 112, 32, {500}},            // four
        {1100, 4, 128, 32, 16, {31, 500, 1090}},  // several units
        {260, 2, 96, 80, 16, {260}},              // five
        {260, 1, 64, 48, 16, {260}},              // three
        {300, 1, 32, 112, 16, {300}},             // seven
    };
    return all;
}

using Fill = std::function<float(std::mt19937&)>;

void fill(Tensor& tensor, std::mt19937& random, const Fill& value) {
    for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
        for (std::int64_t j = 0; j < tensor.shape[1]; ++j) {
            for (std::int64_t k = 0; k < tensor.depth(); ++k)
                tensor.at(i, j, k) = narrow_bf16(value(random));
        }
    }
}

// Normal numbers times a power of two.
Fill scaled(int exponent) {
    return [exponent](std::mt19937& random) {
        return std::ldexp(std::normal_distribution<float>()(random), exponent);
    };
}
// Every exponent of a range.
Fill spread(int low, int high) {
    return [low, high](std::mt19937& random) {
        return std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random),
                          std::uniform_int_distribution<int>(low, high)(random));
    };
}

struct Recipe {
    const char* name;
    Fill input, weight, output_grad;
};

const std::vector<Recipe>& recipes() {
    static const std::vector<Recipe> all = {
        {"normal", scaled(0), scaled(0), scaled(0)},
        {"products below the normal numbers", scaled(-100), scaled(-30), scaled(-36)},
        {"subnormal X", scaled(-130), scaled(4), scaled(4)},
        {"subnormal W", scaled(10), scaled(-129), scaled(0)},
        {"subnormal dY", scaled(10), scaled(10), scaled(-129)},
        {"dY of every size", scaled(0), scaled(4), spread(-135, 18)},
        {"tiny dY", scaled(0), scaled(-36), scaled(-95)},
        {"zero X", scaled(-1000), scaled(0), scaled(0)},
        {"large W", scaled(-20), scaled(30), scaled(-3)},
        {"large dY", scaled(0), scaled(0), scaled(60)},
        {"sums that overflow", scaled(110), scaled(16), scaled(16)},
        {"some of everything", spread(-135, 100), spread(-30, 18), spread(-40, 18)},
    };
    return all;
}

bool same(std::uint16_t a, std::uint16_t b) {
    if (std::isnan(widen_bf16(a)) || std::isnan(widen_bf16(b)))
        return std::isnan(widen_bf16(a)) && std::isnan(widen_bf16(b));
    return a == b || ((a | b) & 0x7fff) == 0;  // zeros of either sign
}

void expect_forward(Problem& p, const char* name) {
    const Shape& shape = p.shape;
    std::int64_t row = 0, previous = 0;
    for (const std::int64_t end : shape.lengths) {
        for (std::int64_t begin = previous; begin + shape.block <= end;
             begin += shape.stride, ++row) {
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                for (std::int64_t c = 0; c < shape.dim; ++c) {
                    PairSum sum;
                    for (std::int64_t r = 0; r < shape.block; r += 2) {
                        sum.add(widen_bf16(p.input.at(begin + r, n, c)),
                                widen_bf16(p.weight.at(r, n)),
                                widen_bf16(p.input.at(begin + r + 1, n, c)),
                                widen_bf16(p.weight.at(r + 1, n)));
                    }
                    ASSERT_TRUE(same(p.output.at(row, n, c), sum.rounded()))
                        << name << ": row " << row << " head " << n << " channel " << c << ": "
                        << widen_bf16(p.output.at(row, n, c)) << ", expected "
                        << widen_bf16(sum.rounded());
                }
            }
        }
        previous = end;
    }
}

void expect_input_grad(Problem& p, const char* name) {
    const Shape& shape = p.shape;
    std::int64_t first_row = 0, previous = 0;
    for (const std::int64_t end : shape.lengths) {
        const std::int64_t rows =
            WindowGeometry{shape.block, shape.stride}.num_windows(end - previous);
        for (std::int64_t t = previous; t < end; ++t) {
            std::vector<std::int64_t> open;
            for (std::int64_t j = 0; j < rows; ++j) {
                const std::int64_t r = t - previous - j * shape.stride;
                if (r >= 0 && r < shape.block) open.push_back(j);
            }
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                for (std::int64_t c = 0; c < shape.dim; ++c) {
                    PairSum sum;
                    const auto grad = [&](std::size_t k) {
                        return widen_bf16(p.output_grad.at(first_row + open[k], n, c));
                    };
                    const auto weight = [&](std::size_t k) {
                        return widen_bf16(p.weight.at(t - previous - open[k] * shape.stride, n));
                    };
                    for (std::size_t k = 0; k < open.size(); k += 2) {
                        const bool odd = k + 1 < open.size();
                        sum.add(grad(k), weight(k), odd ? grad(k + 1) : 0, odd ? weight(k + 1) : 0);
                    }
                    ASSERT_TRUE(same(p.input_grad.at(t, n, c), sum.rounded()))
                        << name << ": token " << t << " head " << n << " channel " << c << ": "
                        << widen_bf16(p.input_grad.at(t, n, c)) << ", expected "
                        << widen_bf16(sum.rounded());
                }
            }
        }
        previous = end;
        first_row += rows;
    }
}

// Within the rounding of bf16 and of fp32 sums, subnormal ones of either included.
void expect_weight_grad(Problem& p, const char* name) {
    const Shape& shape = p.shape;
    std::vector<double> sums(static_cast<std::size_t>(shape.block * shape.heads)),
        magnitudes(sums.size());
    std::int64_t row = 0, previous = 0, count = 0;
    for (const std::int64_t end : shape.lengths) {
        for (std::int64_t begin = previous; begin + shape.block <= end;
             begin += shape.stride, ++row, count += shape.dim) {
            for (std::int64_t r = 0; r < shape.block; ++r) {
                for (std::int64_t n = 0; n < shape.heads; ++n) {
                    const auto at = static_cast<std::size_t>(r * shape.heads + n);
                    for (std::int64_t c = 0; c < shape.dim; ++c) {
                        const double product =
                            static_cast<double>(widen_bf16(p.output_grad.at(row, n, c))) *
                            static_cast<double>(widen_bf16(p.input.at(begin + r, n, c)));
                        sums[at] += product;
                        magnitudes[at] += std::abs(product);
                    }
                }
            }
        }
        previous = end;
    }
    for (std::int64_t r = 0; r < shape.block; ++r) {
        for (std::int64_t n = 0; n < shape.heads; ++n) {
            const auto at = static_cast<std::size_t>(r * shape.heads + n);
            const double got = widen_bf16(p.weight_grad.at(r, n)), wanted = sums[at];
            if (magnitudes[at] > 0x1p127) continue;  // a sum on the way may be infinite
            const auto terms = static_cast<double>(count);
            const double bound = 0x1p-8 * std::abs(wanted) + 0x1p-134 +
                                 terms * (0x1p-23 * magnitudes[at] + 0x1p-149);
            ASSERT_LE(std::abs(got - wanted), bound)
                << name << ": row " << r << " head " << n << ": " << got << ", expected " << wanted;
        }
    }
}

// The vectors themselves: two multiply-adds for a product of pairs, in any shape and with any
// number of open windows; nothing subnormal is lost, whatever is next to it.
TEST_F(NsaCompressPairsTest, SumsAreThoseOfTwoMultiplyAdds) {
    for (const Shape& shape : shapes()) {
        for (const Recipe& recipe : recipes()) {
            Problem p(shape, HalfFormat::kBf16);
            std::mt19937 random(11);
            fill(p.input, random, recipe.input);
            fill(p.weight, random, recipe.weight);
            fill(p.output_grad, random, recipe.output_grad);
            p.run_with(kernels());
            expect_forward(p, recipe.name);
            expect_input_grad(p, recipe.name);
            expect_weight_grad(p, recipe.name);
        }
    }
}

// dW of one unit, too small for the instruction where not all of it is: each row of W, each head
// by itself.
TEST_F(NsaCompressPairsTest, TinyWeightGradientsBesideOthers) {
    Problem p({400, 3, 64, 48, 16, {400}}, HalfFormat::kBf16);
    for (std::int64_t t = 0; t < 400; ++t) {
        for (std::int64_t c = 0; c < 64; ++c) p.input.at(t, 1, c) = narrow_bf16(0x1.8p-99f);
    }
    for (std::int64_t j = 0; j < p.shape.rows(); ++j) {
        for (std::int64_t c = 0; c < 64; ++c) p.output_grad.at(j, 1, c) = narrow_bf16(0x1p-31f);
    }
    p.run_with(kernels());
    expect_weight_grad(p, "head 1 tiny");
    EXPECT_GT(widen_bf16(p.weight_grad.at(5, 1)), 0x1p-120f);
}

// A channel that is computed again does not change the others, nor do other heads or windows.
TEST_F(NsaCompressPairsTest, WhatIsComputedAgainLeavesTheRestAlone) {
    const Shape shape{220, 2, 80, 48, 32, {220}};
    Problem clean(shape, HalfFormat::kBf16);
    std::mt19937 random(5);
    for (Tensor* tensor : {&clean.input, &clean.weight, &clean.output_grad})
        fill(*tensor, random, scaled(0));
    clean.run_with(kernels());
    for (const float other : {std::numeric_limits<float>::quiet_NaN(), 0x1p-130f, 0.0f}) {
        Problem p = clean;
        for (std::int64_t t = 0; t < shape.tokens; ++t) p.input.at(t, 1, 37) = narrow_bf16(other);
        p.run_with(kernels());
        for (std::int64_t j = 0; j < shape.rows(); ++j) {
            for (std::int64_t n = 0; n < 2; ++n) {
                for (std::int64_t c = 0; c < 80; ++c) {
                    if (n == 1 && c == 37) continue;
                    ASSERT_EQ(p.output.at(j, n, c), clean.output.at(j, n, c)) << other;
                }
            }
        }
        EXPECT_EQ(p.input_grad.storage, clean.input_grad.storage);
        for (std::int64_t r = 0; r < shape.block; ++r)
            ASSERT_EQ(p.weight_grad.at(r, 0), clean.weight_grad.at(r, 0)) << other;
    }
}

// The instruction is the two multiply-adds on this machine, to the last bit of fp32, however many
// tokens are taken at once.
TEST_F(NsaCompressPairsTest, InstructionAndExactKernelsHaveTheSameBits) {
    constexpr std::int64_t kDim = 80, kBlock = 128, kHeads = 2;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto halves = [&](std::int64_t count) {
        std::vector<std::uint16_t> made(static_cast<std::size_t>(count));
        for (std::uint16_t& half : made) half = narrow_bf16(normal(random));
        return made;
    };
    const auto input = halves(kSlabTokens * kHeads * kDim), weight = halves(kHeads * kBlock);
    const CompressPairKernels& pairs = *compress_pair_kernels();
    const auto sums_of = [&](int windows, LineRequests requests, bool exact) {
        const AlignedBuffer<float> sums(windows * kHeads * kDim);
        std::fill_n(sums.data(), windows * kHeads * kDim, 0.5f);
        CompressSlab slab{};
        slab.input = input.data();
        slab.token_stride = kHeads * kDim;
        slab.head_stride = slab.head_dim = kDim;
        slab.num_heads = kHeads;
        slab.ahead = {32, 16};
        slab.requests = requests;
        slab.weight_halves = weight.data();
        slab.block = kBlock;
        slab.num_windows = windows;
        for (int k = 0; k < windows; ++k) {
            slab.first_row[k] = (windows - 1 - k) * 16;
            slab.sums[k] = sums.data() + k * kHeads * kDim;
        }
        (exact ? pairs.exact_compress_slab : pairs.compress_slab)(slab);
        return std::vector<float>(sums.data(), sums.data() + windows * kHeads * kDim);
    };
    for (int windows = 1; windows <= kMaxOpenWindows; ++windows) {
        const std::vector<float> exact = sums_of(windows, LineRequests::kOnce, true);
        EXPECT_EQ(sums_of(windows, LineRequests::kOnce, false), exact) << windows;
        EXPECT_EQ(sums_of(windows, LineRequests::kTwice, true), exact) << windows;
        EXPECT_EQ(sums_of(windows, LineRequests::kTwice, false), exact) << windows;
    }
}

// Wherever it stands, one sum that is not plain shows; both ends of the range are plain.
TEST_F(NsaCompressPairsTest, KnowsPlainSums) {
    constexpr std::int64_t kChannels = 80, kWholeLines = 64;
    constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                    kLargest = std::numeric_limits<float>::max();
    const AlignedBuffer<float> sums(kChannels);
    const AlignedBuffer<std::uint16_t> rounded(kWholeLines);
    const CompressPairKernels& pairs = *compress_pair_kernels();
    const auto are_plain = [&](std::int64_t channel, float value) {
        std::fill_n(sums.data(), kChannels, 1.0f);
        sums.data()[channel] = value;
        const auto rounding = [&](bool bypass_cache) {
            return pairs.round_sums[bypass_cache](sums.data(), rounded.data(), kWholeLines);
        };
        const bool past_cache = rounding(true), through_cache = rounding(false),
                   ordering = pairs.order_sums(sums.data(), kChannels);
        EXPECT_EQ(past_cache, ordering || channel >= kWholeLines) << channel << ' ' << value;
        EXPECT_EQ(through_cache, past_cache) << channel << ' ' << value;
        return ordering;
    };
    for (std::int64_t c = 0; c < kChannels; ++c) {
        for (const float sign : {1.0f, -1.0f}) {
            EXPECT_TRUE(are_plain(c, sign * kLeastSum)) << c;
            EXPECT_TRUE(are_plain(c, sign * kLargest)) << c;
            EXPECT_FALSE(are_plain(c, sign * std::nextafter(kLeastSum, 0.0f))) << c;
            EXPECT_FALSE(are_plain(c, sign * 0.0f)) << c;
            EXPECT_FALSE(are_plain(c, sign * 0x1p-149f)) << c;
            EXPECT_FALSE(are_plain(c, sign * kInfinity)) << c;
            EXPECT_FALSE(are_plain(c, std::copysign(std::nanf(""), sign))) << c;
        }
    }
}

// One pass over plain sums has the bits of two, and leaves the sums as they were.
TEST_F(NsaCompressPairsTest, RoundsSumsInTheOrderOfChannels) {
    constexpr std::int64_t kChannels = 160;
    const AlignedBuffer<float> sums(kChannels), ordered(kChannels);
    std::mt19937 random(3);
    std::normal_distribution<float> values;
    std::generate_n(sums.data(), kChannels, [&] { return values(random); });
    std::copy_n(sums.data(), kChannels, ordered.data());
    const std::vector<float> before(sums.data(), sums.data() + kChannels);
    ASSERT_TRUE(compress_pair_kernels()->order_sums(ordered.data(), kChannels));
    for (const bool bypass_cache : {false, true}) {
        const AlignedBuffer<std::uint16_t> rounded(kChannels);
        const auto round_sums = compress_pair_kernels()->round_sums[bypass_cache];
        EXPECT_TRUE(round_sums(sums.data(), rounded.data(), kChannels));
        for (std::int64_t c = 0; c < kChannels; ++c)
            EXPECT_EQ(rounded.data()[c], narrow_bf16(ordered.data()[c])) << c << bypass_cache;
        EXPECT_TRUE(std::equal(before.begin(), before.end(), sums.data())) << bypass_cache;
    }
}

}  // namespace
}  // namespace attncheck::impl
