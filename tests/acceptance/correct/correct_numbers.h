/* Numbers of the storage types for the correct kernels: binary64 to fp16, bf16, fp32 and fp8 in one rounding, and back. */
#ifndef CORRECT_NUMBERS_H
#define CORRECT_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attncheck/candidate.h"

static inline float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double of_half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    const double size = exponent == 31  ? (digits ? (double)NAN : (double)INFINITY)
                        : exponent == 0 ? digits * 0x1p-24
                                        : (double)of_bits((uint32_t)(exponent + 112) << 23 | (uint32_t)digits << 13);
    return bits >> 15 ? -size : size;
}

/* To nearest with `kept` bits of the 23 behind the point; NaN stays. */
static inline float shortened(float x, int kept) {
    const uint32_t bits = bits_of(x), cut = 23u - (uint32_t)kept;
    if (x != x || fabsf(x) == INFINITY) return x;
    return of_bits((bits + ((1u << (cut - 1)) - 1) + (bits >> cut & 1)) >> cut << cut);
}

/* binary64 to the nearest number of 11 bits, or multiple of 2^-24. */
static inline double to_half(double x) {
    int exponent;
    if (fabs(x) < 0x1p-14) return nearbyint(x * 0x1p24) * 0x1p-24;
    const double digits = frexp(x, &exponent);
    const double nearest = ldexp(nearbyint(digits * 0x1p11), exponent - 11);
    return fabs(nearest) > 65504 ? copysign(INFINITY, x) : nearest;
}

static inline uint16_t half_bits(double x) {
    const uint32_t bits = bits_of((float)x), sign = bits >> 16 & 0x8000;
    if (x != x) return 0x7e00;
    if (fabs(x) == INFINITY) return (uint16_t)(sign | 0x7c00);
    if (fabs(x) < 0x1p-14) return (uint16_t)(sign | (uint32_t)(fabs(x) * 0x1p24));
    return (uint16_t)(sign | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
}

/* binary64 straight to the type. */
static inline double stored(int32_t type, double x) {
    if (x != x || fabs(x) == INFINITY) return x;
    if (type == ATTNCHECK_FLOAT16) return to_half(x);
    if (type == ATTNCHECK_FLOAT32) return (double)(float)x;
    float nearest = (float)x; /* to odd: the second rounding cannot go wrong */
    if ((double)nearest != x && !(bits_of(nearest) & 1))
        nearest = nextafterf(nearest, (double)nearest < x ? INFINITY : -INFINITY);
    if (fabsf(nearest) == INFINITY) nearest = x > 0 ? 0x1.fffffep127f : -0x1.fffffep127f;
    return shortened(nearest, 7);
}

/* fp8: to nearest with `digits` bits behind the point, multiples of `least` near zero; beyond `largest` infinite. */
static inline double to_fp8(int32_t type, double x) {
    const int digits = type == ATTNCHECK_FLOAT8_E5M2 ? 2 : 3;
    const double least = type == ATTNCHECK_FLOAT8_E5M2 ? 0x1p-16 : 0x1p-9, largest = type == ATTNCHECK_FLOAT8_E5M2 ? 57344 : 448;
    int exponent;
    if (x == 0 || x != x || fabs(x) == INFINITY) return x;
    const double part = frexp(x, &exponent), unit = ldexp(1, exponent - 1 - digits);
    const double nearest = unit < least ? nearbyint(x / least) * least : ldexp(nearbyint(ldexp(part, digits + 1)), exponent - 1 - digits);
    return fabs(nearest) > largest ? copysign(INFINITY, x) : nearest;
}

static inline double of_fp8(int32_t type, uint8_t bits) {
    const int digits = type == ATTNCHECK_FLOAT8_E5M2 ? 2 : 3, bias = type == ATTNCHECK_FLOAT8_E5M2 ? 15 : 7;
    const int exponent = (bits & 127) >> digits, part = bits & ((1 << digits) - 1);
    double size = exponent == 0 ? ldexp(part, 1 - bias - digits) : ldexp(part + (1 << digits), exponent - bias - digits);
    if (type == ATTNCHECK_FLOAT8_E5M2 && exponent == 31) size = part ? (double)NAN : (double)INFINITY;
    if (type != ATTNCHECK_FLOAT8_E5M2 && (bits & 127) == 127) size = (double)NAN;
    return bits >> 7 ? -size : size;
}

#endif
