// Verdicts on two runs: what counts as a broken relation.
#include "properties/judge/verdict.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace attncheck::properties {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

bool is_broken(double left, double right, double allowed) {
    return verdict_on_difference("out", {1, left}, {1, right}, {0, allowed}, "a relation",
                                 [](std::size_t) { return std::string(); })
        .failed();
}

TEST(Relations, HoldWhereBothRunsGiveNoNumber) {
    EXPECT_FALSE(is_broken(kNoNumber, kNoNumber, 0));
    EXPECT_FALSE(is_broken(-kNoNumber, kNoNumber, 1));
    EXPECT_FALSE(is_broken(kEndless, kEndless, 0));
}

TEST(Relations, BreakWhereOneRunGivesNoNumber) {
    EXPECT_TRUE(is_broken(kNoNumber, 0, 1));
    EXPECT_TRUE(is_broken(0, kNoNumber, 1));
    EXPECT_TRUE(is_broken(kEndless, -kEndless, 1));
    EXPECT_TRUE(is_broken(kEndless, kNoNumber, 1));
    EXPECT_TRUE(is_broken(kEndless, 0, 1));
}

TEST(Relations, CompareFiniteNumbersWithTheirAllowance) {
    EXPECT_FALSE(is_broken(2, 3, 1));
    EXPECT_TRUE(is_broken(2, 3, 0.5));
}

}  // namespace
}  // namespace attncheck::properties
