// What the misbehaving libraries share: identification, and a plain correct forward for cases that
// a defect leaves alone. Written from include/attncheck/candidate.h alone.
#ifndef CANDIDATE_BASE_H
#define CANDIDATE_BASE_H

#include <attncheck/candidate.h>
#include <stddef.h>
#include <string.h>

#define IDENTIFY_AS(text)                                                   \
    uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; } \
    const char* attncheck_candidate_name(void) { return text; }

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float widen(int32_t dtype, uint16_t bits) {
    if (dtype == ATTNCHECK_BFLOAT16) return float_of_bits((uint32_t)bits << 16);
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

/* Round to nearest, ties to even, by the hardware: adding a power of two that leaves 11 bits. */
static inline uint16_t narrow(int32_t dtype, float value) {
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (dtype == ATTNCHECK_BFLOAT16) {
        if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7fc0u);
        return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14: subnormal */
        const float shifted = float_of_bits(magnitude) + 0.5f;       /* spacing of 0.5 is 2^-24 */
        return (uint16_t)(sign | (bits_of_float(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

static inline uint16_t* element(const attncheck_tensor* t, int64_t i, int64_t j, int64_t k) {
    const int64_t depth = t->rank > 2 ? k * t->strides[2] : 0;
    return (uint16_t*)t->data + i * t->strides[0] + j * t->strides[1] + depth;
}

/* Behind the element with the highest address; outputs have positive strides only. */
static inline uint16_t* end_of(const attncheck_tensor* t) {
    int64_t offset = 1;
    for (int dim = 0; dim < t->rank; ++dim) {
        if (t->shape[dim] == 0) return (uint16_t*)t->data;
        offset += (t->shape[dim] - 1) * t->strides[dim];
    }
    return (uint16_t*)t->data + offset;
}

/* Length of sequence k. */
static inline int64_t length_of(const attncheck_int_array* ends, int64_t k) {
    return ends->values[k] - (k > 0 ? ends->values[k - 1] : 0);
}

static inline void correct_forward(const attncheck_nsa_compress_args* a) {
    const int64_t block = a->compress_block_size, stride = a->compress_stride;
    int64_t row = 0;
    for (int64_t k = 0; k < a->act_seq_len.size; ++k) {
        const int64_t length = length_of(&a->act_seq_len, k);
        const int64_t start = a->act_seq_len.values[k] - length;
        for (int64_t first = 0; first + block <= length; first += stride, ++row)
            for (int64_t n = 0; n < a->input.shape[1]; ++n)
                for (int64_t c = 0; c < a->input.shape[2]; ++c) {
                    float sum = 0;
                    for (int64_t r = 0; r < block; ++r)
                        sum += widen(a->input.dtype, *element(&a->input, start + first + r, n, c)) *
                               widen(a->input.dtype, *element(&a->weight, r, n, 0));
                    *element(&a->output, row, n, c) = narrow(a->input.dtype, sum);
                }
    }
}

#endif
