#include "impl/kernels/half_formats.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/nsa_compress_kernels.h"
#include "tests/impl/print_half_format.h"

namespace attncheck::impl {
namespace {

constexpr const char* kIsas[] = {"scalar",      "ssse3", "sse4",         "avx2", "avx512",
                                 "avx512_bf16", "amx",   "amx_emulated", "neon"};

// The value of a pattern from the definition of the format, by ldexp.
double defined_value(HalfFormat format, std::uint16_t bits) {
    const int mantissa_bits = format == HalfFormat::kFp16 ? 10 : 7,
              bias = format == HalfFormat::kFp16 ? 15 : 127;
    const int exponent_max = (1 << (15 - mantissa_bits)) - 1;
    const int exponent = (bits & 0x7fff) >> mantissa_bits,
              mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == exponent_max) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    return sign * std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
}

std::uint16_t infinity_bits(HalfFormat format) {
    return format == HalfFormat::kFp16 ? 0x7c00 : 0x7f80;
}

class HalfFormatsTest : public testing::TestWithParam<HalfFormat> {};

// Every pattern widens to its defined value, keeps its sign, and comes back unchanged.
TEST_P(HalfFormatsTest, EveryPatternSurvivesTheRoundTrip) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto pattern = static_cast<std::uint16_t>(bits);
        const float wide = widen(GetParam(), pattern);
        const double defined = defined_value(GetParam(), pattern);
        if (std::isnan(defined)) {
            EXPECT_TRUE(std::isnan(wide)) << bits;
            EXPECT_TRUE(std::isnan(defined_value(GetParam(), narrow(GetParam(), wide)))) << bits;
        } else {
            EXPECT_EQ(wide, defined) << bits;
            EXPECT_EQ(narrow(GetParam(), wide), pattern) << bits;
        }
    }
}

// Half way between neighbours goes to the even one, a hair to either side to the nearer one; the
// largest to infinity.
TEST_P(HalfFormatsTest, TiesGoToEven) {
    for (std::uint32_t bits = 0; bits < infinity_bits(GetParam()); ++bits) {
        const auto low = static_cast<std::uint16_t>(bits),
                   high = static_cast<std::uint16_t>(bits + 1);
        const double low_value = defined_value(GetParam(), low);
        double high_value = defined_value(GetParam(), high);
        if (std::isinf(high_value)) {  // the value the next pattern would have
            high_value =
                low_value +
                (low_value - defined_value(GetParam(), static_cast<std::uint16_t>(low - 1)));
        }
        const auto middle = static_cast<float>((low_value + high_value) / 2);
        const std::uint16_t even = (low & 1) == 0 ? low : high;
        EXPECT_EQ(narrow(GetParam(), middle), even) << bits;
        EXPECT_EQ(narrow(GetParam(), -middle), even | 0x8000) << bits;
        EXPECT_EQ(narrow(GetParam(), std::nextafter(middle, 0.0f)), low) << bits;
        EXPECT_EQ(
            narrow(GetParam(), std::nextafter(middle, std::numeric_limits<float>::infinity())),
            high)
            << bits;
    }
}

TEST_P(HalfFormatsTest, NonFiniteValuesKeepTheirClass) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(narrow(GetParam(), infinity), infinity_bits(GetParam()));
    EXPECT_EQ(narrow(GetParam(), -infinity), infinity_bits(GetParam()) | 0x8000);
    EXPECT_EQ(narrow(GetParam(), std::numeric_limits<float>::max()), infinity_bits(GetParam()));
    for (const std::uint32_t bits :
         {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
        const std::uint16_t half = narrow(GetParam(), std::bit_cast<float>(bits));
        EXPECT_TRUE(std::isnan(defined_value(GetParam(), half))) << std::hex << bits;
    }
}

// The vector conversions of every instruction set of this machine agree with the scalar ones, NaN
// payloads aside.
TEST_P(HalfFormatsTest, VectorsAgreeWithScalars) {
    const auto index = static_cast<int>(GetParam());
    for (const char* isa : kIsas) {
        const auto kernels = find_kernels(isa);
        if (!kernels) continue;
        SCOPED_TRACE(isa);
        std::array<std::uint16_t, 16> half{};
        std::array<float, 16> wide{};
        for (std::uint32_t bits = 0; bits < 0x10000; bits += 16) {
            for (std::uint32_t i = 0; i < 16; ++i) half[i] = static_cast<std::uint16_t>(bits + i);
            kernels->widen_row[index](half.data(), wide.data(), 16);
            for (std::uint32_t i = 0; i < 16; ++i) {
                const float expected = widen(GetParam(), half[i]);
                if (std::isnan(expected)) {
                    EXPECT_TRUE(std::isnan(wide[i])) << bits + i;
                } else {
                    EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
                              std::bit_cast<std::uint32_t>(expected))
                        << bits + i;
                }
            }
        }
        // 4099 is odd and prime: all exponents, and low bits in every combination around the
        // rounding position.
        for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 16 * 4099) {
            for (std::uint32_t i = 0; i < 16; ++i) {
                // Half of the lanes sit exactly on a tie of bf16, which is also one of fp16 for
                // some mantissas.
                auto word = static_cast<std::uint32_t>(bits + i * 4099);
                if (i % 4 == 1) word = (word & 0xffff0000u) | 0x8000u;
                if (i % 4 == 3) word = (word & 0xffffe000u) | 0x1000u;
                // The NaN of a sum of bf16 numbers is one of theirs, widened.
                if ((word & 0x7fffffffu) > 0x7f800000u) word &= 0xffff0000u;
                wide[i] = std::bit_cast<float>(word);
            }
            kernels->narrow_row[index](wide.data(), half.data(), 16);
            for (std::uint32_t i = 0; i < 16; ++i) {
                const std::uint16_t expected = narrow(GetParam(), wide[i]);
                if (std::isnan(wide[i])) {
                    EXPECT_TRUE(std::isnan(defined_value(GetParam(), half[i]))) << bits;
                } else {
                    EXPECT_EQ(half[i], expected)
                        << std::hex << std::bit_cast<std::uint32_t>(wide[i]);
                }
            }
        }
    }
}

// Attention rounds sums of fp32 statistics too: a NaN of any payload stays one.
TEST_P(HalfFormatsTest, AttentionKeepsEveryNan) {
    for (const char* isa : kIsas) {
        const auto kernels = find_attention_kernels(isa);
        if (!kernels) continue;
        for (const std::uint32_t bits :
             {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fffc000u, 0x7f808000u}) {
            const std::vector<float> wide(16, std::bit_cast<float>(bits));
            std::vector<std::uint16_t> half(16);
            kernels->store_product[static_cast<int>(GetParam())](wide.data(), 1.0f, half.data(),
                                                                 16);
            for (const std::uint16_t stored : half)
                EXPECT_TRUE(std::isnan(defined_value(GetParam(), stored))) << isa << " " << bits;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfFormatsTest,
                         testing::Values(HalfFormat::kFp16, HalfFormat::kBf16),
                         [](const auto& param_info) {
                             return std::string(param_info.param == HalfFormat::kFp16 ? "Fp16"
                                                                                      : "Bf16");
                         });

}  // namespace
}  // namespace attncheck::impl
