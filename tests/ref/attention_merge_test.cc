// The oracle of AttentionMerge: values, special rows, and kernels of several kinds within its
// bound.
#include "ref/operators/attention_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ref/constraints/attention_merge.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ExpectedMerge expected_of_row(const std::vector<double>& values, const std::vector<double>& lses,
                              Dtype dtype = Dtype::fp32, const char* rounding = "default") {
    return expected_attention_merge({std::ssize(values), 1, 1, 1},
                                    {dtype, parse_rounding_class(rounding)}, values, lses);
}

TEST(AttentionMerge, WeighsPartsByTheirSums) {
    const ExpectedMerge got = expected_of_row({8, 2}, {std::log(3.0), 0});
    EXPECT_NEAR(got.output.value[0], (3 * 8 + 2) / 4.0, 1e-12);
    EXPECT_NEAR(got.lse.value[0], std::log(4.0), 1e-12);
}

// Whatever it holds.
TEST(AttentionMerge, PartWithoutKeysCountsForNothing) {
    const ExpectedMerge got = expected_of_row({kNan, 5, kInfinity}, {-kInfinity, 7, -kInfinity});
    EXPECT_EQ(got.output.value[0], 5);
    EXPECT_EQ(got.lse.value[0], 7);
}

TEST(AttentionMerge, RowWithoutPartsIsZero) {
    for (const std::vector<double>& lses : {std::vector<double>{}, {-kInfinity, -kInfinity}}) {
        const ExpectedMerge got = expected_of_row(std::vector<double>(lses.size(), kNan), lses);
        EXPECT_EQ(got.output.value[0], 0);
        EXPECT_EQ(got.output.bound[0], 0);
        EXPECT_EQ(got.lse.value[0], -kInfinity);
    }
}

// Infinite lses have no meaning in the contract; NaN reaches both outputs.
TEST(AttentionMerge, SpecialLses) {
    const ExpectedMerge nan = expected_of_row({1, 2}, {0, kNan});
    EXPECT_TRUE(std::isnan(nan.output.value[0]));
    EXPECT_TRUE(std::isnan(nan.lse.value[0]));
    const ExpectedMerge infinite = expected_of_row({1, 2}, {0, kInfinity});
    EXPECT_EQ(infinite.output.bound[0], kInfinity);
    EXPECT_EQ(infinite.lse.bound[0], kInfinity);
}

// split=half: a running result in the type of the parts is rounded as often as there are merges.
TEST(AttentionMerge, RunningResultsInHalfAreWithinTheirBound) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    double most = 0, most_without = 0;
    for (int k = 0; k < 2000; ++k) {
        const std::size_t parts = 2 + random() % 7;
        std::vector<double> o(parts), lse(parts);
        for (std::size_t p = 0; p < parts; ++p)
            o[p] = decode(Dtype::bf16, encode(Dtype::bf16, normal(random))), lse[p] = static_cast<float>(normal(random));
        double run = o[0], run_lse = lse[0];
        for (std::size_t p = 1; p < parts; ++p) {
            const double to = std::log(std::exp(run_lse) + std::exp(lse[p]));
            run = std::exp(run_lse - to) * run + std::exp(lse[p] - to) * o[p];
            run = decode(Dtype::bf16, encode(Dtype::bf16, run));
            run_lse = to;
        }
        const ExpectedMerge with = expected_of_row(o, lse, Dtype::bf16, "split=half"),
                            without = expected_of_row(o, lse, Dtype::bf16);
        most = std::max(most, std::fabs(run - with.output.value[0]) / with.output.bound[0]);
        most_without = std::max(most_without, std::fabs(run - without.output.value[0]) / without.output.bound[0]);
    }
    EXPECT_LE(most, 1);
    EXPECT_GT(most, 0.4);
    EXPECT_GT(most_without, 1.5);
}

// Taken in one by one, each part has once been the largest so far: the sum of two may leave fp32 before a third makes them small.
TEST(AttentionMerge, PartsTakenInOneByOneMayOverflow) {
    const auto is_open = [](double largest, Dtype dtype) {
        return expected_of_row({0.3 * largest, 0.9 * largest, 0}, {-0.867, -0.574, 30}, dtype).output.overflow[0] == Overflow::any;
    };
    const double largest = std::numeric_limits<float>::max();
    EXPECT_TRUE(is_open(largest, Dtype::fp32));
    EXPECT_TRUE(is_open(0x1.fep127, Dtype::bf16));
    EXPECT_FALSE(is_open(largest / 2, Dtype::fp32));
    EXPECT_FALSE(is_open(65504, Dtype::fp16));
}

// ---- the bound ----

struct Merged {
    float output, lse;
};

/// One pass after the maximum; `stored` takes weights from the rounded LSE.
Merged merge_at_once(const std::vector<float>& o, const std::vector<float>& lse, bool stored,
                     bool base_two) {
    constexpr float kLog2E = 1.44269504f;
    const float max = *std::max_element(lse.begin(), lse.end());
    const auto weight = [&](float l, float m) {
        return base_two ? std::exp2(l * kLog2E - m * kLog2E) : std::exp(l - m);
    };
    float sum = 0, total = 0;
    for (const float l : lse) sum += weight(l, max);
    const float whole = max + std::log(sum);
    for (std::size_t p = 0; p < o.size(); ++p)
        total += stored ? weight(lse[p], whole) * o[p] : weight(lse[p], max) * o[p];
    return {stored ? total : total / sum, whole};
}

/// Part by part, rescaling what was there.
Merged merge_online(const std::vector<float>& o, const std::vector<float>& lse) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0, total = 0;
    for (std::size_t p = 0; p < o.size(); ++p) {
        const float next = std::max(max, lse[p]), scale = std::exp(max - next);
        const float own = std::exp(lse[p] - next);
        sum = sum * scale + own;
        total = total * scale + own * o[p];
        max = next;
    }
    return {total / sum, max + std::log(sum)};
}

/// Part by part, by a difference, as rings of devices have it; the LSE is stored each time.
Merged merge_by_differences(const std::vector<float>& o, const std::vector<float>& lse) {
    float total = o[0], whole = lse[0];
    for (std::size_t p = 1; p < o.size(); ++p) {
        const float x = whole - lse[p], gate = 1 / (1 + std::exp(x));
        total = total - gate * (total - o[p]);
        whole = whole - (x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)));
    }
    return {total, whole};
}

TEST(AttentionMerge, MergesOfDifferencesStayWithinTheBoundOfTheirWord) {
    std::mt19937 random(2);
    std::normal_distribution<double> normal;
    double worst = 0, worst_lse = 0, worst_plain = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        const std::size_t parts = 2 + random() % 20;
        const double spread = std::vector{0.0, 1.0, 20.0, 200.0}[random() % 4];
        std::vector<float> o(parts), lse(parts);
        for (float& value : o) value = static_cast<float>(normal(random) * (random() % 3 ? 1 : 1e4));
        for (float& value : lse) value = static_cast<float>(spread * normal(random));
        const Merged got = merge_by_differences(o, lse);
        const auto ratio = [&](const ExpectedTensor& of, float value) {
            return std::fabs(value - of.value[0]) / of.bound[0];
        };
        const auto expected = [&](const char* words) {
            return expected_of_row({o.begin(), o.end()}, {lse.begin(), lse.end()}, Dtype::fp32, words);
        };
        worst = std::max(worst, ratio(expected("split=lse").output, got.output));
        worst_lse = std::max(worst_lse, ratio(expected("split=lse").lse, got.lse));
        worst_plain = std::max(worst_plain, ratio(expected("default").output, got.output));
    }
    EXPECT_LT(worst, 1);
    EXPECT_GT(worst, 0.05) << "the bound is loose";
    EXPECT_LT(worst_lse, 1);
    EXPECT_GT(worst_plain, 1) << "the word is not needed";
}

TEST(AttentionMerge, KernelsInFp32StayWithinTheBound) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    double worst = 0, worst_lse = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        const std::size_t parts = 1 + random() % 40;
        const double spread = std::vector{0.0, 1.0, 20.0, 200.0}[random() % 4];
        const double shift = std::vector{0.0, 1000.0, -1000.0}[random() % 3];
        std::vector<float> o(parts), lse(parts);
        for (float& value : o) value = static_cast<float>(normal(random) * (trial % 3 ? 1 : 1e3));
        for (float& value : lse) value = static_cast<float>(shift + spread * normal(random));
        const ExpectedMerge expected =
            expected_of_row({o.begin(), o.end()}, {lse.begin(), lse.end()});
        for (const Merged& got :
             {merge_at_once(o, lse, false, false), merge_at_once(o, lse, true, false),
              merge_at_once(o, lse, false, true), merge_at_once(o, lse, true, true),
              merge_online(o, lse)}) {
            worst = std::max(worst, std::fabs(got.output - expected.output.value[0]) /
                                        expected.output.bound[0]);
            worst_lse = std::max(worst_lse, std::fabs(got.lse - expected.lse.value[0]) /
                                                expected.lse.bound[0]);
        }
    }
    EXPECT_LE(worst, 1);
    EXPECT_LE(worst_lse, 1);
    EXPECT_GE(worst, 0.05);  // not much wider than what kernels do
    EXPECT_GE(worst_lse, 0.05);
}

// A declared error of exp widens the bound, and so does a coarser accumulator.
TEST(AttentionMerge, BoundFollowsTheRoundingClass) {
    const auto bound = [](const char* rounding) {
        return expected_of_row({1, -2, 0.5}, {0.5, 0, -1}, Dtype::fp16, rounding).output.bound[0];
    };
    EXPECT_GT(bound("exp=400"), bound("default"));
    EXPECT_GT(bound("acc=half"), 4 * bound("default"));
    EXPECT_EQ(bound("p=fp32"), bound("p=half"));  // weights are no operand of a matrix product
}

// ---- constraints ----

TensorArgument tensor(Dtype dtype, std::vector<std::int64_t> shape) {
    return {true, static_cast<std::int32_t>(dtype), static_cast<std::int32_t>(shape.size()), shape};
}

AttentionMergeArguments legal() {
    return {tensor(Dtype::bf16, {3, 2, 4, 8}), tensor(Dtype::fp32, {3, 2, 4}),
            tensor(Dtype::bf16, {2, 4, 8}), tensor(Dtype::fp32, {2, 4})};
}

TEST(AttentionMergeConstraints, AcceptsWhatIsLegal) {
    AttentionMergeArguments a = legal();
    EXPECT_TRUE(rule_attention_merge(a).accepted());
    a.lse = {};
    EXPECT_TRUE(rule_attention_merge(a).accepted());
    a.parts.shape[0] = a.lses.shape[0] = 0;
    EXPECT_TRUE(rule_attention_merge(a).accepted());
}

TEST(AttentionMergeConstraints, NamesTheParameter) {
    const auto blamed = [](auto change) {
        AttentionMergeArguments a = legal();
        change(a);
        const Ruling ruling = rule_attention_merge(a);
        EXPECT_TRUE(ruling.accepted() || ruling.any_status);
        return ruling.parameter;
    };
    EXPECT_EQ(blamed([](auto& a) { a.lses = {}; }), "lses");
    EXPECT_EQ(blamed([](auto& a) { a.out.rank = 4, a.out.shape.push_back(1); }), "out");
    EXPECT_EQ(blamed([](auto& a) { a.parts.dtype = 3; }), "parts");
    EXPECT_EQ(blamed([](auto& a) { a.lses.dtype = 27; }), "lses");
    EXPECT_EQ(blamed([](auto& a) { a.out.dtype = 1; }), "out");
    EXPECT_EQ(blamed([](auto& a) { a.parts.shape[2] = 0; }), "parts");
    EXPECT_EQ(blamed([](auto& a) { a.parts.shape[0] = -1; }), "parts");
    EXPECT_EQ(blamed([](auto& a) { a.lses.shape[0] = 4; }), "lses");
    EXPECT_EQ(blamed([](auto& a) { a.lse.shape[1] = 5; }), "lse");
}

}  // namespace
}  // namespace attncheck::ref
