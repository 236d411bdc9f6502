// Conversions of halves, in the C functions and in op::fp16_t.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "acl/acl_base.h"
#include "aclnn/opdev/fp16_t.h"

// op::tagFp16::operator=(const double&), which object files compiled against the vendor's header
// call out of line.
extern "C" void* assign_double_out_of_line(void* half,
                                           const double& value) __asm__("_ZN2op7tagFp16aSERKd");

namespace attncheck::aclnn {
namespace {

static_assert(sizeof(op::fp16_t) == 2 && std::is_standard_layout_v<op::fp16_t> &&
              std::is_trivially_copyable_v<op::fp16_t> && std::is_same_v<op::fp16_t, op::tagFp16> &&
              std::is_same_v<decltype(op::fp16_t::val), std::uint16_t>);

/// The value of a half with exponent 31 taken as an ordinary exponent.
double value_of(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double significand = (bits & 0x3ff) + (exponent == 0 ? 0 : 1024);
    const double magnitude = std::ldexp(significand, (exponent == 0 ? 1 : exponent) - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// All 65536 patterns.
TEST(Float16, WidensExactly) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float widened = aclFloat16ToFloat(half);
        ASSERT_EQ(widened, value_of(half)) << bits;
        ASSERT_EQ(std::signbit(widened), bits >= 0x8000) << bits;
        ASSERT_EQ(op::fp16_t(half).toFloat(), widened) << bits;
    }
}

// Every finite half, the midpoint above it, and the numbers next to the midpoint.
TEST(Float16, NarrowsToNearestEven) {
    for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
        const auto next = static_cast<std::uint16_t>(bits + 1);
        const double low = value_of(bits), middle = (low + value_of(next)) / 2;  // exact
        const std::uint16_t even = bits & 1 ? next : bits;
        const auto middle_float = static_cast<float>(middle);
        const std::pair<float, std::uint16_t> cases[] = {
            {static_cast<float>(low), bits},
            {middle_float, even},
            {std::nextafter(middle_float, 0.0f), bits},
            {std::nextafter(middle_float, 1e9f), next}};
        for (const auto& [value, wanted] : cases) {
            ASSERT_EQ(aclFloatToFloat16(value), wanted) << value;
            ASSERT_EQ(aclFloatToFloat16(-value), wanted | 0x8000) << value;
            ASSERT_EQ(op::fp16_t(value).val, wanted) << value;
            ASSERT_EQ(op::fp16_t(-value).val, wanted | 0x8000) << value;
        }
        // Closer to the midpoint than any float: a detour over float would round twice.
        ASSERT_EQ(op::fp16_t(std::nextafter(middle, 0.0)).val, bits) << middle;
        ASSERT_EQ(op::fp16_t(std::nextafter(middle, 1e9)).val, next) << middle;
    }
}

TEST(Float16, Saturates) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(aclFloatToFloat16(65504.0f), 0x7bff);
    EXPECT_EQ(aclFloatToFloat16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
    for (const float big : {65520.0f, 65536.0f, 1e30f, infinity, nan}) {
        EXPECT_EQ(aclFloatToFloat16(big), 0x7bff) << big;
        EXPECT_EQ(aclFloatToFloat16(std::copysign(big, -1.0f)), 0xfbff) << big;
        EXPECT_EQ(op::fp16_t(big).val, 0x7bff) << big;
        EXPECT_EQ(op::fp16_t(std::copysign(big, -1.0f)).val, 0xfbff) << big;
    }
    EXPECT_EQ(aclFloat16ToFloat(0x7c00), 65536.0f);
    EXPECT_EQ(aclFloat16ToFloat(0x7e00), 98304.0f);
}

TEST(Float16, KeepsSignedZeroAndUnderflow) {
    EXPECT_EQ(aclFloatToFloat16(-0.0f), 0x8000);
    EXPECT_EQ(aclFloatToFloat16(0x1p-25f), 0x0000);  // halfway to the smallest: ties to even
    EXPECT_EQ(aclFloatToFloat16(0x1.000002p-25f), 0x0001);
    EXPECT_EQ(aclFloatToFloat16(1e-40f), 0x0000);
    EXPECT_EQ(op::fp16_t(-0.0).val, 0x8000);
    EXPECT_EQ(op::fp16_t(0x1p-25).val, 0x0000);
    EXPECT_EQ(op::fp16_t(0x1.0000000000001p-25).val, 0x0001);
    EXPECT_EQ(op::fp16_t(std::numeric_limits<double>::denorm_min()).val, 0x0000);
}

// As in the vendor's class: a uint16_t constructs from bits and assigns as a number.
TEST(Float16, ConstructsFromAnyNumber) {
    EXPECT_EQ(op::fp16_t().val, 0);
    EXPECT_EQ(op::fp16_t(1).val, 0x3c00);
    EXPECT_EQ(op::fp16_t(std::int8_t{-2}).val, 0xc000);
    EXPECT_EQ(op::fp16_t(std::uint64_t{1} << 60).val, 0x7bff);
    EXPECT_EQ(op::fp16_t(std::int64_t{-2049}).val, 0xe800);  // halfway between 2048 and 2050
    EXPECT_EQ(op::fp16_t(std::uint16_t{0x3c00}).val, 0x3c00);
    op::fp16_t assigned;
    assigned = std::uint16_t{3};
    EXPECT_EQ(assigned.val, 0x4200);
    const std::vector<op::fp16_t> ones(5, 1.0);
    for (const op::fp16_t& one : ones) EXPECT_EQ(one.val, 0x3c00);
}

TEST(Float16, AssignmentSymbolOfTheVendorsClassIsExported) {
    const auto assigned = [&](double value) {
        std::uint16_t half = 0xdead;
        EXPECT_EQ(assign_double_out_of_line(&half, value), &half);
        return half;
    };
    for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
        const auto next = static_cast<std::uint16_t>(bits + 1);
        const double low = value_of(bits), middle = (low + value_of(next)) / 2;
        ASSERT_EQ(assigned(low), bits) << low;
        ASSERT_EQ(assigned(-middle), (bits & 1 ? next : bits) | 0x8000) << middle;
        ASSERT_EQ(assigned(std::nextafter(middle, 0.0)), bits) << middle;
        ASSERT_EQ(assigned(std::nextafter(middle, 1e9)), next) << middle;
    }
    EXPECT_EQ(assigned(-0.0), 0x8000);
    EXPECT_EQ(assigned(std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(assigned(1e300), 0x7bff);
    EXPECT_EQ(assigned(-std::numeric_limits<double>::quiet_NaN()), 0xfbff);
}

}  // namespace
}  // namespace attncheck::aclnn
