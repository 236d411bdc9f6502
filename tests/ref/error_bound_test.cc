// The bound holds for every order of summation that was tried, and is not much wider than it must
// be.
#include "ref/bounds/error_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "tests/ref/print_dtype.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Random = std::mt19937_64;

struct Expected {
    double value, bound;
    Overflow overflow;
};

struct Pairs {
    std::vector<double> a, b;  // stored numbers of one type
    std::size_t size() const { return a.size(); }
};

Expected expect_sum(const Pairs& pairs, Dtype type, const RoundingClass& rounding = {}) {
    ProductSum sum;
    sum.least = min_normal(type);
    for (std::size_t i = 0; i < pairs.size(); ++i) sum.add(pairs.a[i], pairs.b[i]);
    ExpectedTensor out(3);
    finish(sum, {type, rounding}, out, 1);
    return {out.value[1], out.bound[1], out.overflow[1]};
}

// ---- Generated sums -----------------------------------------------------------------------------

enum Kind { kNormal, kCancelling, kHuge, kSubnormal, kIntegers, kSpiky, kWide, kKinds };

double stored(Dtype type, double value) {
    const double largest = max_finite(type);
    return decode(type, encode(type, std::clamp(value, -largest, largest)));
}

double draw(Random& random, Dtype type, Kind kind) {
    std::normal_distribution<double> normal;
    const auto power = [&](int low, int high) {
        return std::ldexp(1.0, low + static_cast<int>(random() % (high - low + 1)));
    };
    const int top = type == Dtype::fp16 ? 15 : 127, bottom = type == Dtype::fp16 ? -24 : -133;
    switch (kind) {
        case kHuge:
            return stored(type, normal(random) * power(top / 2 - 4, top / 2));
        case kSubnormal:
            return stored(type, normal(random) * power(bottom, bottom + 10));
        case kIntegers:
            return static_cast<double>(random() % 9) - 4;
        case kSpiky:
            return stored(type, normal(random) * (random() % 8 ? 1 : 0x1p10));
        case kWide:
            return stored(type, normal(random) * power(bottom / 2, top / 2));
        default:
            return stored(type, normal(random));
    }
}

Pairs draw_pairs(Random& random, Dtype type, Kind kind) {
    const std::size_t longest = random() % 8 == 0 ? 2000 : 40;
    const std::size_t n = 1 + random() % longest;
    Pairs pairs;
    for (std::size_t i = 0; i < n; ++i) {
        pairs.a.push_back(draw(random, type, kind));
        // Small products come from one small and one arbitrary factor, or from two small ones.
        pairs.b.push_back(draw(random, type, kind == kSubnormal && random() % 2 ? kNormal : kind));
    }
    // The sum cancels down to the rounding noise of its terms.
    if (kind == kCancelling)
        for (std::size_t i = 1; i < n; i += 2) {
            pairs.a[i] = -pairs.a[i - 1];
            pairs.b[i] = pairs.b[i - 1];
        }
    return pairs;
}

// ---- Candidates: fp32 in several orders, and coarser arithmetic
// -----------------------------------

/// One rounding after every operation, by a function from binary64 to the accumulator's numbers.
template <class Round>
double sum_sequential(const Pairs& pairs, const std::vector<std::size_t>& order, Round&& round) {
    double sum = 0;
    for (const std::size_t i : order) sum = round(sum + round(pairs.a[i] * pairs.b[i]));
    return sum;
}

float sum_fused(const Pairs& pairs, const std::vector<std::size_t>& order) {
    float sum = 0;
    for (const std::size_t i : order)
        sum = std::fma(static_cast<float>(pairs.a[i]), static_cast<float>(pairs.b[i]), sum);
    return sum;
}

float sum_pairwise(const Pairs& pairs, const std::size_t* order, std::size_t n) {
    if (n == 1) return static_cast<float>(pairs.a[*order]) * static_cast<float>(pairs.b[*order]);
    const float left = sum_pairwise(pairs, order, n / 2);
    return left + sum_pairwise(pairs, order + n / 2, n - n / 2);
}

float sum_in_lanes(const Pairs& pairs, const std::vector<std::size_t>& order) {
    float lanes[8] = {};
    for (std::size_t k = 0; k < order.size(); ++k)
        lanes[k % 8] +=
            static_cast<float>(pairs.a[order[k]]) * static_cast<float>(pairs.b[order[k]]);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

double to_float(double x) { return static_cast<float>(x); }

double to_float_truncating(double x) {
    const float nearest = static_cast<float>(x);
    if (std::isinf(nearest)) return nearest;  // no saturation: an overflow stays visible
    return std::fabs(nearest) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

double flush(double x) { return std::fabs(x) < 0x1p-126 ? 0 : x; }

double round_ties_away(Dtype type, double x) {
    const std::uint32_t even = encode(type, std::fabs(x));
    const double value = decode(type, even), next = decode(type, even + 1);
    const bool tie_went_down = value < std::fabs(x) && std::fabs(x) - value == next - std::fabs(x);
    return std::copysign(tie_went_down ? next : value, x);
}

/// Largest |result - value| / bound of what is allowed; infinity when it is not.
double ratio(const Expected& expected, double result) {
    if (!std::isfinite(result)) {
        if (expected.overflow == Overflow::any) return 0;
        const bool right = expected.overflow == Overflow::signed_infinity && std::isinf(result) &&
                           std::signbit(result) == std::signbit(expected.value);
        return right ? 0 : kInfinity;
    }
    const double error = std::fabs(result - expected.value);
    return error == 0 ? 0 : error / expected.bound;
}

/// Both final roundings of an accumulated sum.
double ratio_after_rounding(const Expected& expected, Dtype type, double accumulated) {
    if (!std::isfinite(accumulated)) return ratio(expected, accumulated);
    return std::max(ratio(expected, decode(type, encode(type, accumulated))),
                    ratio(expected, round_ties_away(type, accumulated)));
}

std::vector<std::size_t> identity(std::size_t n) {
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    return order;
}

class BoundOfSums : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Storage, BoundOfSums, testing::Values(Dtype::fp16, Dtype::bf16),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

TEST_P(BoundOfSums, HoldsForEveryOrderInFp32) {
    const Dtype type = GetParam();
    Random random(7);
    double worst = 0;
    int exact = 0;
    for (int i = 0; i < 6000; ++i) {
        const Kind kind = static_cast<Kind>(i % kKinds);
        const Pairs pairs = draw_pairs(random, type, kind);
        const Expected expected = expect_sum(pairs, type);
        // No accumulation error is granted: these reach the bound exactly and say nothing about E.
        const bool only_rounds = expected.bound <= half_ulp(type, expected.value);
        exact += only_rounds;
        std::vector<std::size_t> order = identity(pairs.size());
        for (int pass = 0; pass < 4; ++pass) {
            const double got = std::max(
                {ratio_after_rounding(expected, type, sum_sequential(pairs, order, to_float)),
                 ratio_after_rounding(expected, type, sum_fused(pairs, order)),
                 ratio_after_rounding(expected, type, sum_in_lanes(pairs, order)),
                 ratio_after_rounding(expected, type,
                                      sum_pairwise(pairs, order.data(), order.size()))});
            ASSERT_LE(got, 1) << "case " << i << " kind " << kind << " terms " << pairs.size()
                              << " value " << expected.value << " bound " << expected.bound;
            if (!only_rounds) worst = std::max(worst, got);
            if (pass == 0)
                std::reverse(order.begin(), order.end());
            else
                std::shuffle(order.begin(), order.end(), random);
        }
    }
    RecordProperty("worst_ratio", std::to_string(worst));
    RecordProperty("exact_cases", exact);
    EXPECT_GT(worst, 0.5);
    EXPECT_GT(exact, 600);
}

TEST_P(BoundOfSums, HoldsForCoarserAccumulators) {
    const Dtype type = GetParam();
    const auto to_storage = [type](double x) { return decode(type, encode(type, x)); };
    Random random(11);
    double worst_half = 0, worst_truncating = 0, worst_double = 0;
    for (int i = 0; i < 6000; ++i) {
        const Pairs pairs = draw_pairs(random, type, static_cast<Kind>(i % kKinds));
        const auto order = identity(pairs.size());
        const auto measure = [&](const char* rounding, auto&& round) {
            const Expected expected = expect_sum(pairs, type, parse_rounding_class(rounding));
            const double sum = sum_sequential(pairs, order, round);
            return ratio_after_rounding(expected, type, sum);
        };
        worst_half = std::max(worst_half, measure("acc=half", to_storage));
        worst_truncating =
            std::max(worst_truncating, measure("acc=fp32-truncating", to_float_truncating));
        worst_double = std::max(worst_double, measure("acc=fp64", [](double x) { return x; }));
    }
    RecordProperty("worst_ratio_half", std::to_string(worst_half));
    RecordProperty("worst_ratio_truncating", std::to_string(worst_truncating));
    EXPECT_LE(worst_half, 1);
    EXPECT_GT(worst_half, 0.3);  // the final rounding has nothing left to do: near 0.5 for one term
    EXPECT_LE(worst_truncating, 1);
    EXPECT_GT(worst_truncating, 0.5);
    EXPECT_LE(worst_double, 1);
    EXPECT_GT(worst_double, 0.5);
}

TEST(BoundOfFlushedSums, HoldsWhereverASubnormalBecomesZero) {
    const Dtype type = Dtype::bf16;
    const RoundingClass rounding = parse_rounding_class("ftz=bf16");
    Random random(13);
    double worst = 0;
    int beyond_default = 0;
    for (int i = 0; i < 6000; ++i) {
        const Kind kinds[] = {kSubnormal, kWide, kNormal};
        Pairs pairs = draw_pairs(random, type, kinds[i % 3]);
        // Half the cases pair a subnormal with a large factor: the loss is far above the last bit.
        if (i % 2)
            for (double& b : pairs.b) b = stored(type, b * 0x1p100);
        const Expected expected = expect_sum(pairs, type, rounding);
        const Expected strict = expect_sum(pairs, type);
        double sum = 0;
        for (std::size_t k = 0; k < pairs.size(); ++k)
            sum = flush(to_float(sum + flush(to_float(flush(pairs.a[k]) * flush(pairs.b[k])))));
        if (!std::isfinite(sum)) continue;
        const double result = flush(decode(type, encode(type, sum)));
        ASSERT_LE(ratio(expected, result), 1) << "case " << i;
        worst = std::max(worst, ratio(expected, result));
        beyond_default += ratio(strict, result) > 1;
    }
    RecordProperty("worst_ratio", std::to_string(worst));
    EXPECT_GT(worst, 0.5);
    EXPECT_GT(beyond_default, 500);  // without the declaration the same results are wrong
}

// 1 + n terms of u: round to even drops each of them, the error is n u and gamma is all used up.
TEST(BoundOfSums, GammaIsAttained) {
    constexpr std::size_t kTerms = 1000;
    Pairs pairs{{1}, {1}};
    for (std::size_t i = 0; i < kTerms; ++i) {
        pairs.a.push_back(0x1p-12);
        pairs.b.push_back(0x1p-12);
    }
    const Expected expected = expect_sum(pairs, Dtype::fp32);
    const double sum = sum_sequential(pairs, identity(pairs.size()), to_float);
    EXPECT_EQ(sum, 1);
    EXPECT_LE(ratio(expected, sum), 1);
    EXPECT_GT(ratio(expected, sum), 0.99);
}

// ---- finish, branch by branch -------------------------------------------------------------------

TEST(Gamma, MatchesItsDefinition) {
    EXPECT_EQ(gamma(0, 0x1p-24), 0);
    EXPECT_EQ(gamma(1, 0.5), 1);
    EXPECT_EQ(gamma(3, 0x1p-4), 3.0 / 13);
    EXPECT_GT(gamma(1000, 0x1p-24), 1000 * 0x1p-24);
    EXPECT_EQ(gamma(0x1p24, 0x1p-24), kInfinity);
    EXPECT_EQ(gamma(0x1p30, 0x1p-24), kInfinity);
}

TEST(LowestSetBit, IsTheLargestPowerOfTwoThatDivides) {
    EXPECT_EQ(lowest_set_bit(1), 0);
    EXPECT_EQ(lowest_set_bit(-12), 2);
    EXPECT_EQ(lowest_set_bit(1 + 0x1p-52), -52);
    EXPECT_EQ(lowest_set_bit(0x1p-133), -133);
    EXPECT_EQ(lowest_set_bit(std::numeric_limits<double>::denorm_min() * 6), -1073);
    EXPECT_EQ(lowest_set_bit(0), kNoSetBit);
    EXPECT_GT(kNoSetBit - 2000, ProductSum{}.lowest_bit);
}

TEST(Finish, DemandsExactSumsExactly) {
    const Expected integers = expect_sum({{3, -5, 7}, {2, 4, 1}}, Dtype::bf16);
    EXPECT_EQ(integers.value, -7);
    EXPECT_EQ(integers.bound, 0);
    EXPECT_EQ(integers.overflow, Overflow::none);

    const Expected tie = expect_sum({{256, 1}, {1, 1}}, Dtype::bf16);  // 257: 256 and 258 are right
    EXPECT_EQ(tie.value, 257);
    EXPECT_EQ(tie.bound, 1);
    const Expected nearer = expect_sum({{512, 1}, {1, 1}}, Dtype::bf16);  // spacing 4
    EXPECT_EQ(nearer.bound, 1);
}

TEST(Finish, LeavesExactnessAtTheTwentyFifthBit) {
    const Expected inside = expect_sum({{0x1p11, 1}, {0x1p12 - 2, 1}}, Dtype::fp32);
    EXPECT_EQ(inside.bound, 0);
    const Expected outside = expect_sum({{0x1p12, 1}, {0x1p12, 1}}, Dtype::fp32);
    EXPECT_GE(outside.bound, gamma(2, 0x1p-24) * (0x1p24 + 1) + 1);
    const Expected truncating =
        expect_sum({{3}, {3}}, Dtype::bf16, parse_rounding_class("acc=fp32-truncating"));
    EXPECT_GT(truncating.bound, 0);
}

TEST(Finish, GivesZeroToEmptySumsAndZeroProducts) {
    for (const Pairs& pairs : {Pairs{}, Pairs{{0, -0.0, 5}, {-3, 4, 0}}}) {
        const Expected expected = expect_sum(pairs, Dtype::fp16, parse_rounding_class("ftz=bf16"));
        EXPECT_EQ(expected.value, 0);
        EXPECT_FALSE(std::signbit(expected.value));
        EXPECT_EQ(expected.bound, 0);
    }
}

TEST(Finish, PassesNonFiniteValuesOn) {
    const Expected infinite = expect_sum({{kInfinity, 1}, {2, 1}}, Dtype::fp16);
    EXPECT_EQ(infinite.value, kInfinity);
    EXPECT_EQ(infinite.bound, 0);
    EXPECT_EQ(infinite.overflow, Overflow::none);
    EXPECT_TRUE(std::isnan(expect_sum({{kInfinity, 1}, {0, 1}}, Dtype::fp16).value));
}

// Infinity plus a partial sum that overflows the other way is NaN.
TEST(Finish, DoesNotJudgeInfinityBesideAnOverflow) {
    const double big = 0x1p100;
    const Expected beside = expect_sum({{kInfinity, -big}, {1, 0x1p28}}, Dtype::bf16);
    EXPECT_EQ(beside.overflow, Overflow::any);
    EXPECT_EQ(beside.bound, kInfinity);
    const Expected within = expect_sum({{kInfinity, -big}, {1, 0x1p26}}, Dtype::bf16);
    EXPECT_EQ(within.value, kInfinity);
    EXPECT_EQ(within.bound, 0);
    const Expected nan = expect_sum({{kInfinity, -big}, {0, 0x1p28}}, Dtype::bf16);
    EXPECT_TRUE(std::isnan(nan.value));
    EXPECT_EQ(nan.overflow, Overflow::none);
    // A peak that is infinite itself says nothing about finite terms.
    ExpectedTensor out(1);
    finish(kInfinity, kInfinity, kInfinity, max_finite(Dtype::fp32), Dtype::fp32, out, 0);
    EXPECT_EQ(out.value[0], kInfinity);
    EXPECT_EQ(out.bound[0], 0);
    EXPECT_EQ(out.overflow[0], Overflow::none);
}

TEST(Finish, KnowsWhenTheOutputOverflows) {
    const Expected fits = expect_sum({{65504}, {1}}, Dtype::fp16);
    EXPECT_EQ(fits.overflow, Overflow::none);
    EXPECT_EQ(fits.bound, 0);
    const Expected below = expect_sum({{65504, 1}, {1, 15}}, Dtype::fp16);
    EXPECT_EQ(below.overflow, Overflow::none);
    EXPECT_EQ(below.bound, 15);
    const Expected at = expect_sum({{65504, 1}, {1, 16}}, Dtype::fp16);
    EXPECT_EQ(at.overflow, Overflow::signed_infinity);
    const Expected far = expect_sum({{-65504, -65504}, {100, 100}}, Dtype::fp16);
    EXPECT_EQ(far.overflow, Overflow::signed_infinity);
    EXPECT_GE(far.bound, std::fabs(far.value) - 65504);  // saturation is accepted
    EXPECT_LT(far.value, 0);
}

TEST(Finish, KnowsWhenAPartialSumOverflows) {
    const double big = 0x1p100;
    const Expected within = expect_sum({{big, -big}, {0x1p26, 0x1p26}}, Dtype::bf16);
    EXPECT_EQ(within.value, 0);
    EXPECT_EQ(within.bound, 0);
    EXPECT_EQ(within.overflow, Overflow::none);
    const Expected beyond = expect_sum({{big, -big}, {0x1p28, 0x1p28}}, Dtype::bf16);
    EXPECT_EQ(beyond.value, 0);
    EXPECT_EQ(beyond.overflow, Overflow::any);
    const Expected wide =
        expect_sum({{big, -big}, {0x1p28, 0x1p28}}, Dtype::bf16, parse_rounding_class("acc=fp64"));
    EXPECT_EQ(wide.overflow, Overflow::none);
}

// Huge terms that cancel: the error alone spans the range of fp16, so either infinity may come out.
TEST(Finish, DoesNotTrustTheSignOfACancelledOverflow) {
    Pairs pairs;
    for (int i = 0; i < 64; ++i) {
        pairs.a.push_back(i % 2 ? -60000 : 60000);
        pairs.b.push_back(60000);
    }
    pairs.a.push_back(0x1p-24);  // far below the last bit of the others: nothing is exact
    pairs.b.push_back(1);
    const Expected expected = expect_sum(pairs, Dtype::fp16);
    EXPECT_EQ(expected.value, 0x1p-24);
    EXPECT_GT(expected.bound, 2 * 65504);
    EXPECT_EQ(expected.overflow, Overflow::any);
}

TEST(Finish, AllowsForUnderflowOfProductsOnly) {
    const double tiny = 0x1p-100;  // the product 2^-200 vanishes in fp32
    const Expected expected = expect_sum({{tiny}, {tiny}}, Dtype::bf16);
    EXPECT_GE(expected.bound, 0x1p-200);
    EXPECT_LE(expected.bound, 0x1p-133);
    const Expected representable = expect_sum({{0x1p-100}, {0x1p-33}}, Dtype::bf16);
    EXPECT_EQ(representable.bound, 0);
}

Pairs repeat(std::size_t n, double a, double b) {
    return {std::vector<double>(n, a), std::vector<double>(n, b)};
}

// Each product of 2^-151 becomes 0 in fp32, a truncating accumulator loses almost a whole quantum.
TEST(Finish, AllowsForEveryUnderflow) {
    const Expected small = expect_sum(repeat(100, 0x1p-100, 0x1p-51), Dtype::fp32);
    EXPECT_GE(small.bound, small.value);
    const Pairs below_quantum = repeat(100, 0x1.fcp-100, 0x1p-50);
    const Expected cut =
        expect_sum(below_quantum, Dtype::fp32, parse_rounding_class("acc=fp32-truncating"));
    EXPECT_GE(cut.bound, cut.value);
    EXPECT_LT(expect_sum(below_quantum, Dtype::fp32).bound, cut.value);
}

TEST(Finish, AllowsForEveryFlush) {
    const RoundingClass flushing = parse_rounding_class("ftz=bf16");
    // Normal factors, but each product is flushed.
    const Expected products = expect_sum(repeat(10, 0x1.fcp-64, 0x1p-63), Dtype::bf16, flushing);
    EXPECT_GE(products.bound, products.value);
    // A subnormal factor, although its product is large and exact.
    const Expected factor = expect_sum({{0x1p-130}, {0x1p100}}, Dtype::bf16, flushing);
    EXPECT_GE(factor.bound, factor.value);
    EXPECT_EQ(expect_sum({{0x1p-130}, {0x1p100}}, Dtype::bf16).bound, 0);
    // Nothing is small: exact all the same.
    EXPECT_EQ(expect_sum({{3}, {5}}, Dtype::bf16, flushing).bound, 0);
}

// Half way between two numbers the neighbour is half an ulp away; close to one it is nearer, and E
// may count twice.
TEST(Finish, GrantsNoMoreThanItsFormula) {
    // The kernel's sum in fp32 and, where 53 bits do not hold it, the oracle's own.
    const auto error_of = [](double sum) {
        const double error = gamma(3, 0x1p-24) * sum;
        return error + 2 * gamma(3, 0x1p-53) * (sum + error);
    };
    const double tie = 2.25 + 0x1p-10, near = 2.25 + 0x1p-24;
    const Expected half = expect_sum({{1.5, 0x1p-5, 0x1p-40}, {1.5, 0x1p-5, 0x1p-40}}, Dtype::fp16);
    EXPECT_GE(half.bound, error_of(tie) + 0x1p-10);
    EXPECT_LE(half.bound, (error_of(tie) + 0x1p-10) * (1 + 0x1p-40));
    const Expected close = expect_sum({{1.5, 0x1p-12}, {1.5, 0x1p-12}}, Dtype::fp16);
    const double error = gamma(2, 0x1p-24) * near;
    EXPECT_GE(close.bound, 2 * error + 0x1p-24);
    EXPECT_LE(close.bound, (2 * error + 0x1p-24) * (1 + 0x1p-40));
}

// The last term only prevents exactness: the accumulated error decides whether infinity is right.
TEST(Finish, KnowsWhenAnInexactSumOverflows) {
    const Pairs near{{65504, 15.9921875, 0x1p-24}, {1, 1, 0x1p-24}};
    EXPECT_LT(expect_sum(near, Dtype::fp16).value, 65520);
    EXPECT_EQ(expect_sum(near, Dtype::fp16).overflow, Overflow::signed_infinity);
    const Expected far = expect_sum({{65504, 0x1p-24}, {100, 0x1p-24}}, Dtype::fp16);
    EXPECT_EQ(far.overflow, Overflow::signed_infinity);
    EXPECT_GE(far.bound, far.value - 65504);
    const Pairs peak{{0x1.fffffcp127, 1, 1, 1}, {1, 0x1p-149, 0x1p-149, 0x1p-149}};
    EXPECT_EQ(expect_sum(peak, Dtype::fp32).overflow, Overflow::any);
}

TEST(Finish, DeclaresWhatItCannotCheck) {
    ProductSum sum;
    sum.add(1.5, 1);
    sum.add(0x1p-30, 0x1p-30);
    sum.terms = 0x1p25;
    ExpectedTensor out(1);
    finish(sum, Dtype::fp16, out, 0);
    EXPECT_EQ(out.bound[0], kInfinity);
    EXPECT_EQ(out.overflow[0], Overflow::any);
}

// ftz=all: a subnormal number of fp16 may be 0, stored or given; sums are formed in fp32.
TEST(ErrorBound, GrantsFlushedSubnormalsOfFp16) {
    const RoundingClass flush = parse_rounding_class("ftz=all");
    EXPECT_GE(expect_sum({{0x1p-8}, {0x1p-7}}, Dtype::fp16, flush).bound, 0x1p-15);
    EXPECT_EQ(expect_sum({{0x1p-8}, {0x1p-7}}, Dtype::fp16, parse_rounding_class("ftz=bf16")).bound, 0);
    EXPECT_GE(expect_sum({{0x1p-15}, {1000}}, Dtype::fp16, flush).bound, 1000 * 0x1p-15);
    EXPECT_LT(expect_sum({{0x1p-15, 1}, {1, 1}}, Dtype::fp16, flush).bound, 0x1p-15 + 0x1p-11 + 0x1p-20);
    EXPECT_EQ(expect_sum({{0x1p-8, 1}, {0x1p-7, 1}}, Dtype::fp16, flush).bound,
              expect_sum({{0x1p-8, 1}, {0x1p-7, 1}}, Dtype::fp16).bound);  // no number is subnormal
    EXPECT_EQ(expect_sum({{0x1p-8, 0x1p-8}, {0x1p-7, -0x1p-7}}, Dtype::fp16, flush).bound, 0);
}

// ---- Rounding classes
// -----------------------------------------------------------------------------

TEST(RoundingClass, ParsesProfilesAndLists) {
    EXPECT_EQ(parse_rounding_class("default"), RoundingClass{});
    EXPECT_EQ(parse_rounding_class(""), RoundingClass{});
    EXPECT_EQ(parse_rounding_class("acc=fp32 p=half ds=half"), RoundingClass{});
    const RoundingClass fp32 = parse_rounding_class("fp32");
    EXPECT_FALSE(fp32.prob_rounded);
    EXPECT_FALSE(fp32.score_grad_rounded);
    EXPECT_EQ(fp32.accumulator_roundoff, 0x1p-24);
    EXPECT_EQ(parse_rounding_class(" p=fp32, ds=fp32 "), fp32);
    EXPECT_EQ(parse_rounding_class("fp32 exp=8"), parse_rounding_class("p=fp32 ds=fp32 exp=8"));
    EXPECT_THROW(parse_rounding_class("exp=8 fp32"), std::invalid_argument);
    EXPECT_EQ(parse_rounding_class("acc=fp32-truncating").accumulator_roundoff, 0x1p-23);
    EXPECT_EQ(parse_rounding_class("acc=fp64").accumulator_roundoff, 0x1p-53);
    EXPECT_LT(parse_rounding_class("acc=half").accumulator_roundoff, 0);
    EXPECT_TRUE(parse_rounding_class("acc=half,ftz=bf16").flush_bf16_subnormals);
    EXPECT_EQ(parse_rounding_class("exp=4 tile=16"), RoundingClass{});
    EXPECT_EQ(parse_rounding_class("exp=0.5").exp_error, 0.5);
    EXPECT_EQ(parse_rounding_class("tile=128").least_tile, 128);
    EXPECT_TRUE(parse_rounding_class("p=kept").prob_rounded);
    EXPECT_FALSE(parse_rounding_class("p=half").prob_kept);
    EXPECT_THROW(parse_rounding_class("p=kept p=half"), std::invalid_argument);
    EXPECT_THROW(parse_rounding_class("ds=kept"), std::invalid_argument);
}

TEST(RoundingClass, IsPrintedAsItIsParsed) {
    for (const char* text :
         {"acc=fp32 p=half ds=half", "acc=half p=fp32 ds=half sum=rounded ftz=bf16",
          "acc=fp64 p=half ds=fp32 exp=2.5 tile=1", "acc=fp32 p=half ds=half exp=400",
          "acc=fp32 p=half ds=half order=fixed stats=lse scores=half delta=half "
          "group=half hidden=times_zero split=lse in=bf16x2 scale=half ftz=all",
          "acc=fp32 p=half ds=half split=half", "acc=fp32 p=kept ds=half", "acc=fp32 p=kept ds=fp32 group=half",
          "acc=fp32 p=half ds=half steps=half in=tf32-truncating tanh=8192"})
        EXPECT_EQ(print_rounding_class(parse_rounding_class(text)), text);
}

TEST(RoundingClass, NamesTheWordItRefuses) {
    for (const char* word :
         {"acc=fp8", "p=bf16", "ftz=fp16", "acc", "=half", "exp=-1", "exp=4u", "exp=nan",
          "exp=65537", "exp=1e9", "tanh=-1", "tanh=65537", "steps=bf16", "in=tf32-rounding", "tile=0", "tile=1048577", "tile=2.5", "speed=9", "default=1"}) {
        try {
            parse_rounding_class(std::string("p=half ") + word);
            ADD_FAILURE() << word;
        } catch (const std::invalid_argument& error) {
            EXPECT_NE(std::string(error.what()).find('\'' + std::string(word) + '\''),
                      std::string::npos);
            EXPECT_NE(std::string(error.what()).find("allowed"), std::string::npos);
        }
    }
    EXPECT_THROW(parse_rounding_class("default p=half"), std::invalid_argument);
}

}  // namespace
}  // namespace attncheck::ref
