// The products of bf16 pairs and what keeps numbers away from them that the instruction would
// flush.
#include "impl/kernels/bf16_dot_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "impl/kernels/amx_kernels.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/half_formats.h"
#include "tests/impl/amx_traps.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kStride = 64;

struct Table {
    const char* name;
    const Bf16DotKernels* (*find)();
    bool trapped = false;  ///< traps stand in for the unit
};

void PrintTo(const Table& table, std::ostream* to) { *to << table.name; }

class Bf16DotKernelsTest : public testing::TestWithParam<Table> {
protected:
    void SetUp() override {
        if (GetParam().find() == nullptr) GTEST_SKIP() << "no such instruction on this machine";
        if (!GetParam().trapped) return;
        if (may_use_amx()) GTEST_SKIP() << "the unit itself is there";
        traps_.emplace();
    }
    void TearDown() override {
        if (traps_) {
            EXPECT_EQ(traps_->complaint(), "");
        }
    }
    const Bf16DotKernels& kernels() { return *GetParam().find(); }

    std::optional<AmxTraps> traps_;
};

INSTANTIATE_TEST_SUITE_P(All, Bf16DotKernelsTest,
                         testing::Values(Table{"vectors", &bf16_dot_kernels},
                                         Table{"amx", &amx_kernels},
                                         Table{"amx_trapped", &untried_amx_kernels, true},
                                         Table{"amx_emulated", &emulated_amx_kernels}),
                         [](const auto& table) { return std::string(table.param.name); });

std::vector<std::uint16_t> halves_of(float value) {
    return std::vector<std::uint16_t>(16, narrow_bf16(value));
}

// Against sums in binary64, with the left operand pairwise transposed if rows is even and added to
// what is there if rows % 3 is 0.
void check_product(const Bf16DotKernels& kernels, std::int64_t rows, std::int64_t cols,
                   std::int64_t depth, std::normal_distribution<float>& values,
                   std::mt19937& random) {
    const bool transposed = rows % 2 == 0, accumulate = rows % 3 == 0;
    std::vector<std::uint32_t> left(static_cast<std::size_t>(rows * depth)),
        right(static_cast<std::size_t>(depth * cols));
    for (auto* pairs : {&left, &right}) {
        for (std::uint32_t& pair : *pairs)
            pair = narrow_bf16(values(random)) |
                   static_cast<std::uint32_t>(narrow_bf16(values(random))) << 16;
    }
    const std::int64_t out_stride = cols + 16;
    std::vector<float> out(static_cast<std::size_t>((rows + 1) * out_stride), 3.0f);
    const std::int64_t left_row = transposed ? 1 : depth, left_depth = transposed ? rows : 1;
    kernels.product({left.data(), left_row, left_depth, rows, right.data(), cols, depth, cols,
                     accumulate, 0.5f, out.data(), out_stride});
    for (std::int64_t r = 0; r <= rows; ++r) {
        for (std::int64_t c = 0; c < out_stride; ++c) {
            const float got = out[static_cast<std::size_t>(r * out_stride + c)];
            if (r == rows || c >= cols) {
                ASSERT_EQ(got, 3.0f) << rows << " " << cols << " " << depth;
                continue;
            }
            double sum = 0, magnitude = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
                const auto a = left[static_cast<std::size_t>(r * left_row + k * left_depth)],
                           b = right[static_cast<std::size_t>(k * cols + c)];
                for (const int shift : {0, 16}) {
                    const double term = double{widen_bf16(static_cast<std::uint16_t>(a >> shift))} *
                                        widen_bf16(static_cast<std::uint16_t>(b >> shift));
                    sum += term;
                    magnitude += std::fabs(term);
                }
            }
            ASSERT_NEAR(got, (accumulate ? 3.0 : 0.0) + 0.5 * sum,
                        static_cast<double>(2 * depth + 2) * 0x1p-24 * (magnitude + 3.0))
                << rows << " " << cols << " " << depth;
        }
    }
}

// Weights of any size, subnormal ones included, times elements at either end of their range: each
// single product is exact to the rounding of the weight, and none is flushed.
TEST_P(Bf16DotKernelsTest, TinyWeightsAreAsExactAsOthers) {
    for (int exponent = -149; exponent < 20; ++exponent) {
        for (const float element : {0x1p-38f, 1.0f, 0x1.fep19f}) {
            std::vector<float> weights(2 * kStride), out(16, 0.0f);
            weights[0] = std::ldexp(1.0f, exponent);
            std::vector<std::uint16_t> rounded(2 * kStride);
            EXPECT_FALSE(kernels().narrow_rows({weights.data(), kStride, 1, 32}, rounded.data()));
            std::vector<std::uint32_t> right(16, narrow_bf16(element));
            kernels().product({reinterpret_cast<const std::uint32_t*>(rounded.data()), kStride / 2,
                               1, 1, right.data(), 16, 1, 16, true, 1.0f / kWeightScale, out.data(),
                               16});
            const float exact = static_cast<float>(std::ldexp(double{element}, exponent));
            for (const float sum : out) ASSERT_EQ(sum, exact) << exponent << " " << element;
        }
    }
}

// Every height of a strip and of two tiles, all widths, depths around those of tiles, both orders
// of the left operand. What the operands lie in has no word to spare behind them, and nothing
// outside the result is written.
TEST_P(Bf16DotKernelsTest, ProductsAgreeWithLoops) {
    std::mt19937 random(1);
    std::normal_distribution<float> values;
    for (const std::int64_t cols : {16, 32, 48, 64, 112}) {
        for (std::int64_t rows = 1; rows <= 49; rows += rows < 20 || rows > 30 ? 1 : 5) {
            const std::int64_t depth = (rows + cols) % 3 == 0 ? 9 : rows % 5 == 0 ? 32 : rows + 7;
            check_product(kernels(), rows, cols, depth, values, random);
        }
    }
    check_product(kernels(), 17, 32, 300, values, random);
    if (traps_) {
        EXPECT_GT(traps_->executed(), 1000);
    }
}

TEST_P(Bf16DotKernelsTest, PlainIsWhatTheHeaderSays) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float plain : {0.0f, -0.0f, 0x1p-38f, -0x1p-38f, 1.0f, 0x1.fep19f, -0x1.fep19f})
        EXPECT_TRUE(kernels().all_plain(halves_of(plain).data(), 16)) << plain;
    for (const float other : {0x1p-133f, 0x1.fep-39f, -0x1.fep-39f, 0x1p20f, -0x1p20f, infinity,
                              std::numeric_limits<float>::quiet_NaN()}) {
        // In any place of a line, and behind the last one.
        for (const std::size_t at : {0u, 15u, 16u, 31u, 32u, 47u}) {
            std::vector<std::uint16_t> row(48, narrow_bf16(1.0f)), kept(48);
            row[at] = narrow_bf16(other);
            EXPECT_FALSE(kernels().all_plain(row.data(), 48)) << other << " " << at;
            kernels().keep_plain(row.data(), kept.data(), 48);
            for (std::size_t i = 0; i < 48; ++i) ASSERT_EQ(kept[i], i == at ? 0 : row[i]);
        }
    }
}

// Rounding to nearest even of what is plain; the rest is reported and comes with split_weights.
TEST_P(Bf16DotKernelsTest, WeightsAreRoundedOrSetAside) {
    std::mt19937 random(2);
    for (const bool with_large : {false, true}) {
        constexpr std::int64_t kRows = 5, kCols = 48;
        std::vector<float> weights(kRows * kStride);
        for (float& weight : weights)
            weight = std::ldexp(static_cast<float>(random()) * 0x1p-32f - 0.5f,
                                static_cast<int>(random() % 60) - 40);
        if (with_large) weights[3 * kStride + 37] = -0x1p20f;
        std::vector<std::uint16_t> rows(kRows * kStride);
        std::vector<std::uint32_t> pairs((kRows + 1) / 2 * kStride);
        const WeightTile tile{weights.data(), kStride, kRows, kCols};
        EXPECT_EQ(kernels().narrow_rows(tile, rows.data()), with_large);
        EXPECT_EQ(kernels().narrow_row_pairs(tile, pairs.data()), with_large);
        std::vector<float> plain(weights.size()), rest(weights.size());
        kernels().split_weights(tile, plain.data(), rest.data());
        for (std::int64_t r = 0; r < kRows; ++r) {
            for (std::int64_t c = 0; c < kCols; ++c) {
                const auto at = static_cast<std::size_t>(r * kStride + c);
                const bool large = std::fabs(weights[at]) >= 0x1p20f;
                const std::uint16_t expected = large ? 0 : narrow_bf16(weights[at] * kWeightScale);
                ASSERT_EQ(rows[at], expected) << r << " " << c;
                const std::uint32_t pair = pairs[static_cast<std::size_t>(r / 2 * kStride + c)];
                ASSERT_EQ(pair >> (r % 2 * 16) & 0xffffu, expected) << r << " " << c;
                ASSERT_EQ(plain[at], large ? 0.0f : weights[at]);
                ASSERT_EQ(rest[at], large ? weights[at] : 0.0f);
            }
        }
        // The row that completes the last pair is 0.
        for (std::int64_t c = 0; c < kCols; ++c)
            ASSERT_EQ(pairs[static_cast<std::size_t>(kRows / 2 * kStride + c)] >> 16, 0u);
    }
}

// The bits of the steps one after the other, with statistics of earlier tiles, hidden keys, rows
// without any, and with NaN and infinity among the logits.
TEST_P(Bf16DotKernelsTest, SoftmaxIsItsStepsInOne) {
    const AttentionKernels steps = find_attention_kernels("avx512").value();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::mt19937 random(5);
    std::normal_distribution<float> values(0.0f, 20.0f);
    bool any_lost = false;
    const auto bits = [](const std::vector<float>& numbers) {
        std::vector<std::uint32_t> words(numbers.size());
        std::memcpy(words.data(), numbers.data(), numbers.size() * sizeof(float));
        return words;
    };
    struct Result {
        std::vector<float> weights, row_max, row_sum, rescale;
        std::vector<std::uint16_t> halves;
        bool lost = false;
    };
    for (const std::int64_t rows : {1, 5, 16, 35}) {
        for (const std::int64_t cols : {16, 48, 64}) {
            for (const float odd : {0.0f, -kInfinity, kInfinity, std::nanf("")}) {
                const float factor = random() % 2 == 0 ? 1.0f : 0x1p-21f;
                const auto size = static_cast<std::size_t>(rows);
                Result one{std::vector<float>(size * kStride), std::vector<float>(size, -kInfinity),
                           std::vector<float>(size, 0.0f), std::vector<float>(size),
                           std::vector<std::uint16_t>(size * kStride)};
                for (float& logit : one.weights)
                    logit = random() % 4 == 0 ? -kInfinity : values(random);
                one.weights[random() % one.weights.size()] = odd;
                std::fill_n(one.weights.begin() + kStride * (rows / 2), kStride, -kInfinity);
                for (std::size_t r = 0; r < size; r += 2) {
                    one.row_max[r] = values(random);
                    one.row_sum[r] = 1.5f;
                }
                Result two = one;
                const auto tile = [&](Result& at) {
                    return SoftmaxTile{
                        at.weights.data(), kStride,          rows, cols, factor, at.row_max.data(),
                        at.row_sum.data(), at.rescale.data()};
                };
                one.lost = kernels().softmax_tile(tile(one), one.halves.data());
                steps.softmax_tile(tile(two));
                two.lost = kernels().narrow_rows({two.weights.data(), kStride, rows, cols},
                                                 two.halves.data());
                EXPECT_EQ(one.lost, two.lost);
                any_lost = any_lost || one.lost;
                EXPECT_EQ(one.halves, two.halves);
                EXPECT_EQ(bits(one.weights), bits(two.weights));
                EXPECT_EQ(bits(one.row_max), bits(two.row_max));
                EXPECT_EQ(bits(one.row_sum), bits(two.row_sum));
                EXPECT_EQ(bits(one.rescale), bits(two.rescale));
            }
        }
    }
    EXPECT_TRUE(any_lost);
}

// The bits of two products and the softmax between them; with sums that are added to or not, rows
// and depths that do not fill blocks, a maximum that is NaN already.
TEST_P(Bf16DotKernelsTest, AttentionIsItsStepsInOne) {
    std::mt19937 random(9);
    const auto halves = [&](std::int64_t count) {
        std::vector<std::uint32_t> pairs(static_cast<std::size_t>(count));
        std::normal_distribution<float> values;
        for (std::uint32_t& pair : pairs) {
            pair = static_cast<std::uint32_t>(narrow_bf16(values(random))) |
                   static_cast<std::uint32_t>(narrow_bf16(values(random))) << 16;
        }
        return pairs;
    };
    const auto bits = [](const std::vector<float>& numbers) {
        std::vector<std::uint32_t> words(numbers.size());
        std::memcpy(words.data(), numbers.data(), numbers.size() * sizeof(float));
        return words;
    };
    struct Result {
        std::vector<float> weights, row_max, row_sum, rescale, sums;
        std::vector<std::uint16_t> halves;
        bool lost = false;
    };
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const std::int64_t rows : {1, 16, 33, 64, 100}) {
        for (const auto& [depth_pairs, keys, width] :
             {std::tuple{8, 16, 16}, std::tuple{40, 48, 80}, std::tuple{300, 64, 64}}) {
            for (const bool accumulate : {false, true}) {
                const std::int64_t pairs = depth_pairs, cols = keys;
                const std::vector<std::uint32_t> query = halves(rows * pairs),
                                                 key = halves(pairs * kStride),
                                                 value = halves(cols / 2 * width);
                const auto size = static_cast<std::size_t>(rows);
                Result one{std::vector<float>(size * kStride),
                           std::vector<float>(size, accumulate ? 0.5f : -kInfinity),
                           std::vector<float>(size, accumulate ? 2.0f : 0.0f),
                           std::vector<float>(size),
                           std::vector<float>(size * static_cast<std::size_t>(width), 3.0f),
                           std::vector<std::uint16_t>(size * kStride)};
                if (accumulate) one.row_max[size / 2] = std::nanf("");
                Result two = one;
                const float factor = accumulate ? 1.0f : 0x1p-21f;
                const auto logits = [&](Result& at) {
                    return PairProduct{query.data(),      pairs,  1,    rows,  key.data(),
                                       kStride,           pairs,  cols, false, 0.125f,
                                       at.weights.data(), kStride};
                };
                const auto sums = [&](Result& at) {
                    return PairProduct{reinterpret_cast<const std::uint32_t*>(at.halves.data()),
                                       kStride / 2,
                                       1,
                                       rows,
                                       value.data(),
                                       width,
                                       cols / 2,
                                       width,
                                       accumulate,
                                       1.0f / kWeightScale,
                                       at.sums.data(),
                                       width};
                };
                const auto tile = [&](Result& at) {
                    return SoftmaxTile{
                        at.weights.data(), kStride,          rows, cols, factor, at.row_max.data(),
                        at.row_sum.data(), at.rescale.data()};
                };
                one.lost = kernels().attend({logits(one), tile(one), one.halves.data(), sums(one)});
                kernels().product(logits(two));
                two.lost = kernels().softmax_tile(tile(two), two.halves.data());
                for (std::size_t i = 0; i < two.sums.size() && accumulate; ++i)
                    two.sums[i] *= two.rescale[i / static_cast<std::size_t>(width)];
                kernels().product(sums(two));
                EXPECT_EQ(one.lost, accumulate);
                EXPECT_EQ(two.lost, accumulate);
                EXPECT_EQ(one.halves, two.halves);
                EXPECT_EQ(bits(one.weights), bits(two.weights));
                EXPECT_EQ(bits(one.row_max), bits(two.row_max));
                EXPECT_EQ(bits(one.row_sum), bits(two.row_sum));
                EXPECT_EQ(bits(one.rescale), bits(two.rescale));
                EXPECT_EQ(bits(one.sums), bits(two.sums));
            }
        }
    }
}

// A negative sum that the factor makes vanish leaves +0, added to something or not.
TEST_P(Bf16DotKernelsTest, SumsThatVanishHaveNoSign) {
    constexpr std::int64_t kCols = 16;
    const std::uint32_t left = narrow_bf16(0x1p-73f);
    const std::vector<std::uint32_t> right(kCols, narrow_bf16(-0x1p-20f));
    for (const bool accumulate : {false, true}) {
        std::vector<float> out(kCols, 0.0f);
        kernels().product({&left, 1, 1, 1, right.data(), kCols, 1, kCols, accumulate,
                           1.0f / kWeightScale, out.data(), kCols});
        for (const float sum : out) EXPECT_TRUE(sum == 0.0f && !std::signbit(sum)) << accumulate;
    }
}

// Of ordinary sums; the bits of a division, NaN and infinity where they belong, of all others.
TEST_P(Bf16DotKernelsTest, GradientIsWithinAnUlpOfTheDivision) {
    const AttentionKernels divided = find_attention_kernels("avx512").value();
    constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                    kLargest = std::numeric_limits<float>::max(),
                    kSums[] = {1.0f,     3.7f,      0x1p-126f, 0x1p126f, 0x1p-127f,    0x1p127f,
                               kLargest, kInfinity, 0.0f,      -2.0f,    std::nanf("")};
    constexpr std::int64_t kRows = std::size(kSums), kCols = 48;
    std::mt19937 random(7);
    std::normal_distribution<float> values(0.0f, 3.0f);
    std::vector<float> logits(kRows * kStride), prob_grads(logits.size());
    for (float& logit : logits) logit = values(random) - 5.0f;
    for (float& grad : prob_grads) grad = values(random);
    for (std::int64_t r = 0; r < kRows; ++r) {
        logits[static_cast<std::size_t>(r * kStride + 5)] = -kInfinity;
        logits[static_cast<std::size_t>(r * kStride + 21)] = 100.0f;  // infinity
        logits[static_cast<std::size_t>(r * kStride + 22)] = std::nanf("");
    }
    const std::vector<float> row_max(kRows, 0.5f), delta(kRows, 0.25f);
    std::vector<float> probs = logits, score_grads = prob_grads;
    const auto tile = [&](std::vector<float>& p, std::vector<float>& ds) {
        return GradientTile{p.data(), ds.data(),      kStride, kRows,
                            kCols,    row_max.data(), kSums,   delta.data()};
    };
    divided.gradient_tile(tile(logits, prob_grads));
    kernels().gradient_tile(tile(probs, score_grads));
    for (std::int64_t r = 0; r < kRows; ++r) {
        const bool ordinary = kSums[r] >= 0x1p-126f && kSums[r] <= 0x1p126f;
        for (std::int64_t c = 0; c < kCols; ++c) {
            const auto at = static_cast<std::size_t>(r * kStride + c);
            for (const auto& [got, wanted] :
                 {std::pair(probs[at], logits[at]), std::pair(score_grads[at], prob_grads[at])}) {
                if (std::isnan(wanted)) {
                    EXPECT_TRUE(std::isnan(got)) << r << ' ' << c;
                } else if (ordinary && std::isfinite(wanted)) {
                    EXPECT_LE(std::fabs(got - wanted), std::fabs(wanted) * 0x1p-22f + 0x1p-149f)
                        << r << ' ' << c;
                } else {
                    EXPECT_EQ(got, wanted) << r << ' ' << c;
                }
            }
        }
    }
}

}  // namespace
}  // namespace attncheck::impl
