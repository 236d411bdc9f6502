// The comparator: which kinds of disagreement it sees, and in which order it reports them.
#include "properties/judge/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ref/numbers/dtype.h"

namespace attncheck::properties {
namespace {

using Kind = Comparison::Kind;
using ref::Dtype;
using ref::ExpectedTensor;
using ref::Overflow;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestHalf = 65504;

struct Element {
    double expected, bound, got;
    Overflow overflow = Overflow::none;
};

Comparison compared(const std::vector<Element>& elements, Dtype dtype = Dtype::fp16) {
    ExpectedTensor expected(elements.size());
    std::vector<std::uint32_t> got;
    for (std::size_t i = 0; i < elements.size(); ++i) {
        expected.value[i] = elements[i].expected;
        expected.bound[i] = elements[i].bound;
        expected.overflow[i] = elements[i].overflow;
        got.push_back(ref::encode(dtype, elements[i].got));
    }
    return compare(expected, got, dtype);
}

Kind kind_of(const Element& element) { return compared({element}).kind; }

// No elements, nothing to disagree about.
TEST(Compare, EmptyAgrees) {
    const Comparison result = compared({});
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(result.compared, 0u);
    EXPECT_EQ(result.worst_ratio, 0);
}

// A result of the wrong size is wrong as a whole, whatever it holds.
TEST(Compare, WrongSizeIsWrongThroughout) {
    const ExpectedTensor expected(3);
    for (const std::size_t size : {0u, 2u, 4u}) {
        const Comparison result =
            compare(expected, std::vector<std::uint32_t>(size, 0), Dtype::fp16);
        EXPECT_EQ(result.kind, Kind::wrong_size);
        EXPECT_EQ(result.wrong, 3u);
    }
}

// NaN never counts as close to a number, even within an unlimited bound.
TEST(Compare, NanWhereANumberIsDueFails) {
    EXPECT_EQ(kind_of({1, 0, kNan}), Kind::not_finite);
    EXPECT_EQ(kind_of({1, 1e300, kNan}), Kind::not_finite);
    EXPECT_EQ(kind_of({1, kInfinity, kNan}), Kind::not_finite);
    EXPECT_EQ(kind_of({kLargestHalf, 1, kNan, Overflow::signed_infinity}), Kind::not_finite);
}

// A finite number where NaN or infinity is due has lost it.
TEST(Compare, FiniteWhereNonFiniteIsDueFails) {
    for (const double exact : {kNan, kInfinity, -kInfinity})
        for (const double got : {0.0, 1.0, kLargestHalf, -kLargestHalf})
            EXPECT_EQ(kind_of({exact, kInfinity, got}), Kind::not_propagated) << exact << got;
}

// The kind of a non-finite value is not part of the contract.
TEST(Compare, AnyNonFiniteStandsForAnyOther) {
    for (const double exact : {kNan, kInfinity, -kInfinity})
        for (const double got : {kNan, kInfinity, -kInfinity})
            EXPECT_EQ(kind_of({exact, 0, got}), Kind::agrees) << exact << got;
}

// Bound 0 asks for the number itself; the sign of zero is free, and 0/0 is no error.
TEST(Compare, BoundZeroDemandsTheValue) {
    EXPECT_EQ(kind_of({1, 0, 1}), Kind::agrees);
    EXPECT_EQ(kind_of({1, 0, 1 + 0x1p-10}), Kind::wrong_value);
    EXPECT_EQ(kind_of({0, 0, 0x1p-24}), Kind::wrong_value);
    EXPECT_EQ(kind_of({0, 0, -0.0}), Kind::agrees);
    EXPECT_EQ(kind_of({-0.0, 0, 0.0}), Kind::agrees);
    EXPECT_EQ(compared({{0, 0, 0}}).worst_ratio, 0);
    EXPECT_EQ(compared({{1, 0, 2}}).worst_ratio, kInfinity);
}

// Without leave to overflow, infinity is wrong even next to the largest number.
TEST(Compare, OverflowNoneDemandsFiniteResults) {
    EXPECT_EQ(kind_of({kLargestHalf, kInfinity, kInfinity}), Kind::not_finite);
    EXPECT_EQ(kind_of({-kLargestHalf, kInfinity, -kInfinity}), Kind::not_finite);
}

// With it, infinity and the largest number of the right sign are right, and nothing else is.
TEST(Compare, SignedInfinityAcceptsItsOwnSignOnly) {
    for (const double sign : {1.0, -1.0}) {
        const double exact = sign * 70000;
        const auto kind = [&](double got) {
            return kind_of({exact, 0, got, Overflow::signed_infinity});
        };
        EXPECT_EQ(kind(sign * kInfinity), Kind::agrees);
        EXPECT_EQ(kind(-sign * kInfinity), Kind::not_finite);
        EXPECT_EQ(kind(sign * kLargestHalf), Kind::agrees);
        EXPECT_EQ(kind(-sign * kLargestHalf), Kind::wrong_value);
        EXPECT_EQ(kind(sign * 65472), Kind::wrong_value);
    }
}

// A partial sum that may have left the range can end as any non-finite value, or as a right one.
TEST(Compare, OverflowAnyAcceptsEveryNonFiniteValue) {
    for (const double got : {kNan, kInfinity, -kInfinity})
        EXPECT_EQ(kind_of({1, 0, got, Overflow::any}), Kind::agrees) << got;
    EXPECT_EQ(kind_of({1, 0, 1, Overflow::any}), Kind::agrees);
    EXPECT_EQ(kind_of({1, 0.25, 2, Overflow::any}), Kind::wrong_value);
}

// The largest number is no excuse where the result cannot overflow.
TEST(Compare, SaturationNeedsLeaveToOverflow) {
    EXPECT_EQ(kind_of({1, 0.5, kLargestHalf}), Kind::wrong_value);
}

// The first non-finite disagreement is reported, even behind and before a worse value.
TEST(Compare, FirstNonFiniteBeatsTheWorstValue) {
    const std::vector<Element> elements{
        {1, 0.1, 1}, {1, 0.1, 1000}, {1, 0.1, kNan}, {kNan, 0, 1}, {1, 0.1, 9000}};
    const Comparison result = compared(elements);
    EXPECT_EQ(result.kind, Kind::not_finite);
    EXPECT_EQ(result.index, 2u);
    EXPECT_EQ(result.wrong, 4u);
    EXPECT_EQ(result.compared, 5u);
    EXPECT_TRUE(std::isnan(result.got));
    EXPECT_EQ(result.expected, 1);
}

// Among finite values the one that is furthest beyond its own bound is reported.
TEST(Compare, WorstValueIsMeasuredInUnitsOfItsBound) {
    const Comparison result = compared({{0, 1, 2}, {0, 0.0625, 1}, {0, 4, 32}, {0, 1, 0.5}});
    EXPECT_EQ(result.kind, Kind::wrong_value);
    EXPECT_EQ(result.index, 1u);
    EXPECT_EQ(result.wrong, 3u);
    EXPECT_EQ(result.worst_ratio, 16);
    EXPECT_EQ(result.error, 1);
    EXPECT_EQ(result.bound, 0.0625);
}

// The worst ratio is there on success too: how close to the limit a candidate came.
TEST(Compare, WorstRatioIsReportedOnSuccess) {
    const Comparison result = compared({{0, 4, 1}, {0, 4, -3}, {kNan, 0, kNan}, {0, 8, 2}});
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(result.worst_ratio, 0.75);
}

// The same rule for plain numbers.
TEST(Compare, ErrorRatioTreatsZeroOverZeroAsAgreement) {
    EXPECT_EQ(error_ratio(0, 0), 0);
    EXPECT_EQ(error_ratio(1, 4), 0.25);
    EXPECT_EQ(error_ratio(1, 0), kInfinity);
    EXPECT_EQ(error_ratio(1, kInfinity), 0);
    EXPECT_TRUE(std::isnan(error_ratio(kNan, 1)));
    EXPECT_TRUE(std::isnan(error_ratio(kNan, 0)));
}

}  // namespace
}  // namespace attncheck::properties
