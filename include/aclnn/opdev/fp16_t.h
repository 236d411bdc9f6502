/* op::fp16_t, a binary16 number with conversions, for host code that prepares data. C++11. */
#ifndef ACLNN_OPDEV_FP16_T_H
#define ACLNN_OPDEV_FP16_T_H

#include <stdint.h>
#include <string.h>

namespace op {

/* Numbers become halves to nearest, ties to even, in one rounding; magnitudes that round past
 * 65504, infinities and NaN become 65504 with the sign of the number. Beware of uint16_t:
 * constructing takes it as bits, assigning as a number. */
struct tagFp16 {
    uint16_t val;

    tagFp16() : val(0) {}
    tagFp16(const tagFp16&) = default;
    tagFp16(const uint16_t& bits) : val(bits) {}
    template <typename Number>
    tagFp16(const Number& value) : val(0) {
        *this = value;
    }

    tagFp16& operator=(const tagFp16&) = default;
    tagFp16& operator=(const double& value) {
        val = nearest(value);
        return *this;
    }
    tagFp16& operator=(const float& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const int8_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const uint8_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const int16_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const uint16_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const int32_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const uint32_t& value) { return *this = static_cast<double>(value); }
    /* Beyond 2^53 the conversion to double rounds, but there every number saturates anyway. */
    tagFp16& operator=(const int64_t& value) { return *this = static_cast<double>(value); }
    tagFp16& operator=(const uint64_t& value) { return *this = static_cast<double>(value); }

    /* Exact. Exponent 31 counts as an ordinary exponent, as in aclFloat16ToFloat. */
    float toFloat() const {
        const uint32_t exponent = (val >> 10) & 31u;
        const uint32_t significand = (val & 0x3ffu) + (exponent != 0 ? 0x400u : 0u);
        const uint64_t unit = uint64_t(1) << (exponent != 0 ? exponent - 1 : 0); /* in 2^-24 */
        const float magnitude = static_cast<float>(significand * unit) / 16777216.0f;
        return (val & 0x8000u) != 0 ? -magnitude : magnitude;
    }
    operator float() const { return toFloat(); }

private:
    static uint16_t nearest(double value) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000u);
        const uint64_t magnitude = bits & 0x7fffffffffffffffu;
        const int exponent = static_cast<int>(magnitude >> 52) - 1023;
        if (exponent >= 16) return static_cast<uint16_t>(sign | 0x7bffu); /* NaN as well */
        if (exponent < -25) return sign;                                  /* below half of 2^-24 */
        /* The last bit of the half is worth 2^(exponent - 10), and 2^-24 among the subnormals. */
        const int dropped_bits = exponent >= -14 ? 42 : 42 + (-14 - exponent);
        const uint64_t significand = (magnitude & 0xfffffffffffffu) | 0x10000000000000u;
        const uint64_t half_unit = uint64_t(1) << (dropped_bits - 1);
        const uint64_t odd = significand >> dropped_bits & 1u;
        uint64_t half = (significand + (half_unit - 1 + odd)) >> dropped_bits;
        /* The hidden bit, still in `half`, adds the last 1 to the biased exponent; so does a carry.
         */
        if (exponent >= -14) half += static_cast<uint64_t>(exponent + 14) << 10;
        if (half > 0x7bffu) half = 0x7bffu;
        return static_cast<uint16_t>(sign | half);
    }
};

typedef tagFp16 fp16_t;

} /* namespace op */

#endif /* ACLNN_OPDEV_FP16_T_H */
