#include "ref/numbers/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace attncheck::ref {
namespace {

/// A binary interchange format: 1 sign bit, exponent_bits, and precision - 1 stored bits of the
/// significand.
/// Where `has_infinity` is false the highest exponent holds numbers too, and its last pattern alone
/// is NaN (OCP OFP8 E4M3FN).
struct Format {
    int exponent_bits, precision;
    bool has_infinity = true;

    constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    constexpr int max_exponent() const { return has_infinity ? bias() : bias() + 1; }
    constexpr int min_exponent() const { return 1 - bias(); }
    constexpr int width() const { return exponent_bits + precision; }
    constexpr std::uint32_t magnitude_mask() const { return (1u << (width() - 1)) - 1; }
    /// The first pattern that is no finite number: infinity, or the one NaN.
    constexpr std::uint32_t overflow_bits() const {
        return has_infinity ? ((1u << exponent_bits) - 1) << (precision - 1) : magnitude_mask();
    }
    constexpr std::uint32_t nan_bits() const { return overflow_bits() | 1u << (precision - 2); }
};

[[noreturn]] void refuse(Dtype dtype, const char* what) {
    throw std::invalid_argument(std::string(what) + ": dtype " + std::string(dtype_name(dtype)) +
                                " (" + std::to_string(static_cast<std::int32_t>(dtype)) +
                                ") is not one of fp16, bf16, fp32, fp8_e5m2, fp8_e4m3fn");
}

/// Calls work.operator()<F>() for the format F of a type. Half the time of a small case goes into
/// conversions: with the format as a constant they are a few instructions each.
template <typename Work>
auto with_format(Dtype dtype, const Work& work) {
    switch (dtype) {
        case Dtype::fp16:
            return work.template operator()<Format{5, 11}>();
        case Dtype::bf16:
            return work.template operator()<Format{8, 8}>();
        case Dtype::fp32:
            return work.template operator()<Format{8, 24}>();
        case Dtype::fp8_e5m2:
            return work.template operator()<Format{5, 3}>();
        case Dtype::fp8_e4m3fn:
            return work.template operator()<Format{4, 4, false}>();
        default:
            refuse(dtype, "floating-point format");
    }
}

/// 2^exponent for a normal binary64 exponent.
constexpr double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// floor(log2 |value|), with every binary64 subnormal (and zero) below every exponent of the
/// storage types.
int binary_exponent(double value) {
    return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

bool is_integer(Dtype dtype) {
    return dtype == Dtype::int32 || dtype == Dtype::uint8 || dtype == Dtype::boolean;
}

template <Format f>
double decode_as(std::uint32_t bits) {
    constexpr int stored_bits = f.precision - 1;
    const std::uint32_t fraction = bits & ((1u << stored_bits) - 1);
    const int biased = static_cast<int>(bits >> stored_bits & ((1u << f.exponent_bits) - 1));
    double magnitude;
    if ((bits & f.magnitude_mask()) >= f.overflow_bits()) {
        magnitude = f.has_infinity && fraction == 0 ? std::numeric_limits<double>::infinity()
                                                    : std::numeric_limits<double>::quiet_NaN();
    } else {
        // Subnormals share the quantum of the first binade and lack the hidden bit.
        const std::uint32_t significand = biased == 0 ? fraction : fraction | 1u << stored_bits;
        magnitude = significand * power_of_two((biased == 0 ? 1 : biased) - f.bias() - stored_bits);
    }
    // A branch on the sign is predicted wrong half of the time.
    const std::uint64_t sign = static_cast<std::uint64_t>(bits >> (f.width() - 1) & 1) << 63;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | sign);
}

template <Format f>
std::uint32_t encode_as(double value) {
    const auto sign = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 63)
                      << (f.width() - 1);
    if (std::isnan(value)) return sign | f.nan_bits();
    const double magnitude = std::fabs(value);
    if (magnitude >= 2 * power_of_two(f.max_exponent())) return sign | f.overflow_bits();

    // Scaling by a power of two is exact here: it never decreases a number that is small, nor
    // overflows a large one.
    const int exponent = std::max(binary_exponent(magnitude), f.min_exponent());
    const double quanta = magnitude * power_of_two(f.precision - 1 - exponent);
    // Of numbers from 2^52 on the last bit is 1: the sum is rounded to it, a tie to the even one. A
    // comparison of what is left over is predicted wrong half of the time.
    const auto rounded = static_cast<std::uint32_t>((quanta + 0x1p52) - 0x1p52);
    // The hidden bit adds one to the exponent field; a carry out of the significand adds another,
    // up to infinity (or, without one, to NaN).
    const std::uint32_t bits =
        (static_cast<std::uint32_t>(exponent - f.min_exponent()) << (f.precision - 1)) + rounded;
    return sign | std::min(bits, f.overflow_bits());
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp32:
            return "fp32";
        case Dtype::fp16:
            return "fp16";
        case Dtype::int32:
            return "int32";
        case Dtype::uint8:
            return "uint8";
        case Dtype::int64:
            return "int64";
        case Dtype::boolean:
            return "bool";
        case Dtype::bf16:
            return "bf16";
        case Dtype::fp8_e5m2:
            return "fp8_e5m2";
        case Dtype::fp8_e4m3fn:
            return "fp8_e4m3fn";
    }
    return "unknown";
}

int dtype_size(Dtype dtype) {
    switch (dtype) {
        case Dtype::int64:
            return 8;
        case Dtype::fp32:
        case Dtype::int32:
            return 4;
        case Dtype::fp16:
        case Dtype::bf16:
            return 2;
        case Dtype::uint8:
        case Dtype::boolean:
        case Dtype::fp8_e5m2:
        case Dtype::fp8_e4m3fn:
            return 1;
    }
    throw std::invalid_argument("dtype_size: unknown dtype " +
                                std::to_string(static_cast<std::int32_t>(dtype)));
}

double decode(Dtype dtype, std::uint32_t bits) {
    if (dtype == Dtype::int32) return static_cast<std::int32_t>(bits);
    if (dtype == Dtype::uint8 || dtype == Dtype::boolean) return bits & 0xff;
    return with_format(dtype, [&]<Format kFormat>() { return decode_as<kFormat>(bits); });
}

std::uint32_t encode(Dtype dtype, double value) {
    if (dtype == Dtype::int32)
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(
            std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), -0x1p31, 0x1p31 - 1)));
    if (dtype == Dtype::uint8 || dtype == Dtype::boolean)
        return static_cast<std::uint32_t>(
            std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), 0.0, 255.0));
    return with_format(dtype, [&]<Format kFormat>() { return encode_as<kFormat>(value); });
}

std::vector<double> decode_all(Dtype dtype, std::span<const std::uint32_t> bits) {
    std::vector<double> values(bits.size());
    if (is_integer(dtype))
        std::transform(bits.begin(), bits.end(), values.begin(),
                       [&](std::uint32_t b) { return decode(dtype, b); });
    else
        with_format(dtype, [&]<Format kFormat>() {
            std::transform(bits.begin(), bits.end(), values.begin(),
                           [](std::uint32_t b) { return decode_as<kFormat>(b); });
        });
    return values;
}

std::vector<std::uint32_t> encode_all(Dtype dtype, std::span<const double> values) {
    std::vector<std::uint32_t> bits(values.size());
    if (is_integer(dtype))
        std::transform(values.begin(), values.end(), bits.begin(),
                       [&](double v) { return encode(dtype, v); });
    else
        with_format(dtype, [&]<Format kFormat>() {
            std::transform(values.begin(), values.end(), bits.begin(),
                           [](double v) { return encode_as<kFormat>(v); });
        });
    return bits;
}

double unit_roundoff(Dtype dtype) {
    return with_format(dtype, []<Format f>() { return power_of_two(-f.precision); });
}

double max_finite(Dtype dtype) {
    return with_format(dtype, []<Format f>() {
        constexpr double missing = f.has_infinity ? 1 : 2;  // the last pattern is NaN, not a number
        return (2 - missing * power_of_two(1 - f.precision)) * power_of_two(f.max_exponent());
    });
}

double min_normal(Dtype dtype) {
    return with_format(dtype, []<Format f>() { return power_of_two(f.min_exponent()); });
}

double half_ulp(Dtype dtype, double magnitude) {
    if (std::isnan(magnitude)) return magnitude;
    return with_format(dtype, [&]<Format f>() {
        const int exponent =
            std::clamp(binary_exponent(magnitude), f.min_exponent(), f.max_exponent());
        return power_of_two(exponent - f.precision);
    });
}

}  // namespace attncheck::ref
