// Conversions and spacings of the storage types, exhaustively where the type has 16 bits.
#include "ref/numbers/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "tests/ref/print_dtype.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SixteenBitType : public testing::TestWithParam<Dtype> {};

std::string type_name(const testing::TestParamInfo<Dtype>& type) {
    return std::string(dtype_name(type.param));
}
INSTANTIATE_TEST_SUITE_P(Storage, SixteenBitType, testing::Values(Dtype::fp16, Dtype::bf16),
                         type_name);

std::uint32_t infinity_bits(Dtype dtype) { return dtype == Dtype::fp16 ? 0x7c00 : 0x7f80; }

TEST_P(SixteenBitType, EveryPatternSurvivesWideningAndNarrowing) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const double value = decode(GetParam(), bits);
        if ((bits & 0x7fff) > infinity_bits(GetParam())) {
            EXPECT_TRUE(std::isnan(value)) << bits;
            const std::uint32_t back = encode(GetParam(), value);
            EXPECT_GT(back & 0x7fff, infinity_bits(GetParam())) << bits;
        } else {
            EXPECT_EQ(encode(GetParam(), value), bits);
        }
    }
}

// Between any two neighbours: the midpoint goes to the even one, anything off it to the nearer one.
TEST_P(SixteenBitType, EveryMidpointTiesToEven) {
    const Dtype type = GetParam();
    for (std::uint32_t bits = 0; bits + 1 < infinity_bits(type); ++bits) {
        const double low = decode(type, bits), high = decode(type, bits + 1);
        const double middle = low + (high - low) / 2;
        ASSERT_EQ(encode(type, middle), bits + (bits & 1)) << bits;
        ASSERT_EQ(encode(type, -middle), (bits + (bits & 1)) | 0x8000u) << bits;
        ASSERT_EQ(encode(type, std::nextafter(middle, 0)), bits) << bits;
        ASSERT_EQ(encode(type, std::nextafter(middle, kInfinity)), bits + 1) << bits;
        // The spacing belongs to the binade of the lower neighbour.
        ASSERT_EQ(half_ulp(type, low), (high - low) / 2) << bits;
        ASSERT_EQ(half_ulp(type, -middle), (high - low) / 2) << bits;
    }
}

TEST_P(SixteenBitType, OverflowStartsHalfASpacingAboveTheLargestNumber) {
    const Dtype type = GetParam();
    const double largest = max_finite(type), limit = largest + half_ulp(type, largest);
    EXPECT_EQ(decode(type, infinity_bits(type) - 1), largest);
    EXPECT_EQ(encode(type, std::nextafter(limit, 0)), infinity_bits(type) - 1);
    EXPECT_EQ(encode(type, limit), infinity_bits(type));
    EXPECT_EQ(encode(type, -limit), infinity_bits(type) | 0x8000);
    EXPECT_EQ(encode(type, std::numeric_limits<double>::max()), infinity_bits(type));
    EXPECT_EQ(encode(type, -kInfinity), infinity_bits(type) | 0x8000);
    EXPECT_EQ(half_ulp(type, 4 * largest), half_ulp(type, largest));
    EXPECT_EQ(half_ulp(type, kInfinity), half_ulp(type, largest));
}

TEST_P(SixteenBitType, SmallNumbersRoundToSubnormalsOrZero) {
    const Dtype type = GetParam();
    const double smallest = decode(type, 1);
    EXPECT_EQ(min_normal(type), decode(type, type == Dtype::fp16 ? 0x0400 : 0x0080));
    EXPECT_EQ(half_ulp(type, 0), smallest / 2);
    EXPECT_EQ(half_ulp(type, min_normal(type)), smallest / 2);
    EXPECT_EQ(encode(type, smallest / 2), 0u);
    EXPECT_EQ(encode(type, std::nextafter(smallest / 2, 1)), 1u);
    EXPECT_EQ(encode(type, 1.5 * smallest), 2u);
    EXPECT_EQ(encode(type, -std::numeric_limits<double>::denorm_min()), 0x8000u);
    EXPECT_EQ(encode(type, -0.0), 0x8000u);
    EXPECT_TRUE(std::signbit(decode(type, 0x8000)));
}

TEST_P(SixteenBitType, HalfUlpIsMonotone) {
    double before = 0;
    for (double x = 0x1p-160; x < 0x1p140; x *= 1.37) {
        EXPECT_GE(half_ulp(GetParam(), x), before) << x;
        before = half_ulp(GetParam(), x);
    }
}

// Rounding to fp32 first would lose the last bit, see a tie and go down to the even neighbour.
/// fp8 (OCP OFP8 revision 1.0), exhaustively: the values from their bits by the formulas of its
/// table 1, E5M2 as the upper half of an fp16.
double e4m3fn_value(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
}

TEST(Fp8, WidensEveryPattern) {
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
        const double e5m2 = decode(Dtype::fp8_e5m2, bits), half = decode(Dtype::fp16, bits << 8);
        EXPECT_TRUE(e5m2 == half || (std::isnan(e5m2) && std::isnan(half))) << bits;
        const double e4m3fn = decode(Dtype::fp8_e4m3fn, bits);
        if ((bits & 0x7f) == 0x7f)
            EXPECT_TRUE(std::isnan(e4m3fn)) << bits;
        else
            EXPECT_EQ(e4m3fn, e4m3fn_value(bits)) << bits;
    }
    EXPECT_EQ(max_finite(Dtype::fp8_e4m3fn), 448);
    EXPECT_EQ(max_finite(Dtype::fp8_e5m2), 57344);
    EXPECT_EQ(min_normal(Dtype::fp8_e4m3fn), 0x1p-6);
    EXPECT_EQ(unit_roundoff(Dtype::fp8_e5m2), 0x1p-3);
}

TEST(Fp8, NarrowsToTheNearestWithTiesToEven) {
    for (const Dtype type : {Dtype::fp8_e5m2, Dtype::fp8_e4m3fn}) {
        const std::uint32_t last = type == Dtype::fp8_e5m2 ? 0x7b : 0x7e;
        for (std::uint32_t bits = 0; bits < last; ++bits) {
            const double low = decode(type, bits), high = decode(type, bits + 1);
            const double middle = low + (high - low) / 2;
            EXPECT_EQ(encode(type, low), bits);
            EXPECT_EQ(encode(type, -low), bits | 0x80);
            EXPECT_EQ(encode(type, middle), bits + (bits & 1)) << bits;
            EXPECT_EQ(encode(type, std::nextafter(middle, 0)), bits) << bits;
            EXPECT_EQ(encode(type, std::nextafter(middle, kInfinity)), bits + 1) << bits;
        }
        EXPECT_EQ(encode(type, max_finite(type)), last);
    }
    EXPECT_EQ(encode(Dtype::fp8_e5m2, 61440), 0x7cu);  // half way to the next: infinity
    EXPECT_EQ(encode(Dtype::fp8_e5m2, kInfinity), 0x7cu);
    EXPECT_EQ(encode(Dtype::fp8_e4m3fn, 464), 0x7eu);  // a tie: 448 is even
    EXPECT_EQ(encode(Dtype::fp8_e4m3fn, 465), 0x7fu);  // no infinity: NaN
    EXPECT_EQ(encode(Dtype::fp8_e4m3fn, -1e6), 0xffu);
    EXPECT_EQ(encode(Dtype::fp8_e4m3fn, -kInfinity), 0xffu);
    EXPECT_TRUE(std::isnan(decode(Dtype::fp8_e4m3fn, encode(Dtype::fp8_e4m3fn, NAN))));
}

TEST(Narrowing, RoundsOnce) {
    const double above_tie = 1 + 0x1p-8 + 0x1p-40;
    EXPECT_EQ(encode(Dtype::bf16, above_tie), 0x3f81u);
    EXPECT_EQ(encode(Dtype::bf16, static_cast<float>(above_tie)), 0x3f80u);
    EXPECT_EQ(encode(Dtype::bf16, 1 + 0x1p-7 + 0x1p-8 - 0x1p-40), 0x3f81u);
    EXPECT_EQ(encode(Dtype::fp16, 1 + 0x1p-11 + 0x1p-50), 0x3c01u);
}

TEST(Narrowing, AgreesWithTheProcessorInFp32) {
    std::mt19937_64 random(20240229);
    for (int i = 0; i < 200000; ++i) {
        double value = std::bit_cast<double>(random());
        // Every second number near the range of fp32, subnormals included.
        if (i % 2)
            value = std::ldexp(1 + random() * 0x1p-64, static_cast<int>(random() % 300) - 160);
        if (std::isnan(value)) continue;
        const float narrow = static_cast<float>(value);
        ASSERT_EQ(encode(Dtype::fp32, value), std::bit_cast<std::uint32_t>(narrow)) << value;
        ASSERT_EQ(decode(Dtype::fp32, std::bit_cast<std::uint32_t>(narrow)), narrow) << value;
    }
}

TEST(Dtypes, HaveTheirDocumentedConstants) {
    EXPECT_EQ(unit_roundoff(Dtype::fp16), 0x1p-11);
    EXPECT_EQ(unit_roundoff(Dtype::bf16), 0x1p-8);
    EXPECT_EQ(unit_roundoff(Dtype::fp32), 0x1p-24);
    EXPECT_EQ(max_finite(Dtype::fp16), 65504);
    EXPECT_EQ(max_finite(Dtype::bf16), 0x1.fep127);
    EXPECT_EQ(max_finite(Dtype::fp32), std::numeric_limits<float>::max());
    EXPECT_EQ(min_normal(Dtype::fp32), std::numeric_limits<float>::min());
    EXPECT_EQ(dtype_size(Dtype::bf16), 2);
    EXPECT_EQ(dtype_size(Dtype::int64), 8);
    EXPECT_EQ(dtype_size(Dtype::boolean), 1);
    EXPECT_THROW(dtype_size(static_cast<Dtype>(2)), std::invalid_argument);
    EXPECT_EQ(dtype_name(static_cast<Dtype>(-7)), "unknown");
    EXPECT_THROW(decode(Dtype::int64, 0), std::invalid_argument);
    EXPECT_THROW(encode(Dtype::int64, 0), std::invalid_argument);
    EXPECT_THROW(max_finite(Dtype::int32), std::invalid_argument);
    EXPECT_THROW(half_ulp(Dtype::uint8, 1), std::invalid_argument);
}

// Indices: every 32-bit pattern of interest survives both ways.
TEST(Integers, SurviveWideningAndNarrowing) {
    EXPECT_EQ(dtype_size(Dtype::int32), 4);
    EXPECT_EQ(dtype_size(Dtype::uint8), 1);
    EXPECT_EQ(dtype_name(Dtype::int32), "int32");
    EXPECT_EQ(dtype_name(Dtype::uint8), "uint8");
    EXPECT_EQ(decode(Dtype::int32, 0xffffffff), -1);
    EXPECT_EQ(decode(Dtype::int32, 0x80000000), -0x1p31);
    EXPECT_EQ(decode(Dtype::int32, 0x7fffffff), 0x1p31 - 1);
    for (const std::uint32_t bits : {0u, 1u, 77u, 0x7fffffffu, 0x80000000u, 0xffffffffu})
        EXPECT_EQ(encode(Dtype::int32, decode(Dtype::int32, bits)), bits);
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
        EXPECT_EQ(decode(Dtype::uint8, bits), bits);
        EXPECT_EQ(encode(Dtype::uint8, bits), bits);
    }
}

// Out of range: the nearest number; between two: the nearest, ties to even; NaN: zero.
TEST(Integers, TakeTheNearestInRange) {
    EXPECT_EQ(encode(Dtype::int32, 0x1p31), 0x7fffffffu);
    EXPECT_EQ(encode(Dtype::int32, -kInfinity), 0x80000000u);
    EXPECT_EQ(encode(Dtype::int32, 2.5), 2u);
    EXPECT_EQ(encode(Dtype::int32, -3.5), static_cast<std::uint32_t>(-4));
    EXPECT_EQ(encode(Dtype::int32, std::nan("")), 0u);
    EXPECT_EQ(encode(Dtype::uint8, -1), 0u);
    EXPECT_EQ(encode(Dtype::uint8, 256), 255u);
    EXPECT_EQ(encode(Dtype::uint8, kInfinity), 255u);
    EXPECT_EQ(encode(Dtype::uint8, 1.5), 2u);
    EXPECT_EQ(encode(Dtype::uint8, std::nan("")), 0u);
}

// A mask byte keeps its value, so that any non-zero one can be told from zero; bits above the byte
// are not read.
TEST(Integers, KeepTheByteOfABool) {
    EXPECT_EQ(decode(Dtype::boolean, 0), 0);
    EXPECT_EQ(decode(Dtype::boolean, 1), 1);
    EXPECT_NE(decode(Dtype::boolean, 200), 0);
    EXPECT_EQ(decode(Dtype::boolean, 0x300), 0);
    EXPECT_EQ(encode(Dtype::boolean, 1), 1u);
    EXPECT_EQ(encode(Dtype::boolean, decode(Dtype::boolean, 200)), 200u);
}

}  // namespace
}  // namespace attncheck::ref
