// The bound is a sharp edge: 0.99 of it passes and 1.01 of it fails, in both directions, at every
// magnitude, and for one element among many.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "properties/judge/compare.h"
#include "properties/case/random.h"
#include "ref/numbers/dtype.h"

namespace attncheck::properties {
namespace {

using ref::Dtype;

// fp32 results: fine enough to place an element within a thousandth of its bound.
class BoundAtMagnitude : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Exponents, BoundAtMagnitude,
                         testing::Values(-100, -40, -24, -14, -1, 0, 1, 10, 16, 40, 100),
                         [](const auto& instance) {
                             const int exponent = instance.param;
                             return (exponent < 0 ? "Minus" : "Plus") +
                                    std::to_string(std::abs(exponent));
                         });

TEST_P(BoundAtMagnitude, IsSharpInBothDirections) {
    constexpr std::size_t kSize = 50;
    Random random(static_cast<std::uint64_t>(GetParam() + 1000));
    for (const int relative_exponent : {-12, -8, -3, 0, 5})
        for (const double direction : {-1.0, 1.0})
            for (const double share : {0.99, 1.01}) {
                ref::ExpectedTensor expected(kSize);
                std::vector<std::uint32_t> got(kSize);
                for (std::size_t i = 0; i < kSize; ++i) {
                    const double unit = static_cast<double>(random.between(64, 127)) / 64;
                    expected.value[i] = std::ldexp(random.chance(50) ? unit : -unit, GetParam());
                    expected.bound[i] = std::ldexp(std::fabs(expected.value[i]), relative_exponent);
                    got[i] = ref::encode(Dtype::fp32, expected.value[i]);
                }
                const auto moved = static_cast<std::size_t>(random.between(0, kSize - 1));
                got[moved] = ref::encode(
                    Dtype::fp32, expected.value[moved] + direction * share * expected.bound[moved]);
                const Comparison result = compare(expected, got, Dtype::fp32);
                EXPECT_NEAR(result.worst_ratio, share, 0.005);
                EXPECT_EQ(result.ok(), share < 1) << relative_exponent << " " << direction;
                if (share < 1) continue;
                EXPECT_EQ(result.kind, Comparison::Kind::wrong_value);
                EXPECT_EQ(result.index, moved);
                EXPECT_EQ(result.wrong, 1u);
                EXPECT_EQ(result.bound, expected.bound[moved]);
            }
}

// An error of exactly the bound is within it.
TEST(Bound, IsIncluded) {
    ref::ExpectedTensor expected(1);
    expected.value[0] = 1;
    expected.bound[0] = 0.5;
    const auto accepts = [&](double got) {
        return compare(expected, std::vector{ref::encode(Dtype::fp32, got)}, Dtype::fp32).ok();
    };
    EXPECT_TRUE(accepts(1.5));
    EXPECT_TRUE(accepts(0.5));
    EXPECT_FALSE(accepts(1.5 + 0x1p-23));
    EXPECT_FALSE(accepts(0.5 - 0x1p-24));
}

// A negative or NaN bound accepts nothing but is no crash: the comparison is written for it.
TEST(Bound, ThatIsNanAcceptsNothing) {
    ref::ExpectedTensor expected(1);
    expected.bound[0] = std::nan("");
    EXPECT_FALSE(compare(expected, std::vector{std::uint32_t{0x3f800000}}, Dtype::fp32).ok());
    EXPECT_FALSE(compare(expected, std::vector{std::uint32_t{0}}, Dtype::fp32).ok());
}

}  // namespace
}  // namespace attncheck::properties
