// Storage types of the oracle: exact widening to binary64, one correctly rounded narrowing from
// binary64, and the spacing of each type. Written from IEEE 754 and the bfloat16 layout;
// deliberately not shared with impl/.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace attncheck::ref {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Element types by their aclDataType number.
enum class Dtype : std::int32_t {
    fp32 = 0,
    fp16 = 1,
    int32 = 3,
    uint8 = 4,
    int64 = 9,
    boolean = 12,
    bf16 = 27,
    fp8_e5m2 = 35,
    fp8_e4m3fn = 36
};

std::string_view dtype_name(Dtype dtype);  ///< "fp16", "bf16", "fp32", ...
int dtype_size(Dtype dtype);  ///< bytes per element; throws std::invalid_argument when unknown

/// Value of a bit pattern, exact for fp16, bf16, fp32 and the fp8 types (subnormals, infinities and
/// NaN included; E4M3FN has no infinity and 448 as its largest number, OCP OFP8 revision 1.0),
/// int32, uint8 and bool (a byte: any non-zero one is true).
double decode(Dtype dtype, std::uint32_t bits);

/// Nearest bit pattern of a binary64 value, ties to even, in one rounding; overflow gives infinity
/// (E4M3FN: NaN), NaN stays NaN. Integers: the nearest one in range, NaN gives 0.
std::uint32_t encode(Dtype dtype, double value);

/// The same for many elements at once.
std::vector<double> decode_all(Dtype dtype, std::span<const std::uint32_t> bits);
std::vector<std::uint32_t> encode_all(Dtype dtype, std::span<const double> values);

double unit_roundoff(Dtype dtype);  ///< u: 2^-11 (fp16), 2^-8 (bf16), 2^-24 (fp32)
double max_finite(Dtype dtype);
double min_normal(Dtype dtype);

/// Largest rounding error of any real number of at most this magnitude: half the spacing of its
/// binade, and half the smallest subnormal near zero. Monotone in magnitude.
double half_ulp(Dtype dtype, double magnitude);

}  // namespace attncheck::ref
