/* Elements and rows of strided tensors for the correct kernels, in binary64. */
#ifndef CORRECT_TENSORS_H
#define CORRECT_TENSORS_H

#include "correct_numbers.h"

static inline int is_fp8(int32_t type) { return type == ATTNCHECK_FLOAT8_E5M2 || type == ATTNCHECK_FLOAT8_E4M3FN; }

static inline double load(const attncheck_tensor* t, int64_t at) {
    if (is_fp8(t->dtype)) return of_fp8(t->dtype, ((const uint8_t*)t->data)[at]);
    if (t->dtype == ATTNCHECK_FLOAT16) return of_half(((const uint16_t*)t->data)[at]);
    if (t->dtype == ATTNCHECK_FLOAT32) return (double)((const float*)t->data)[at];
    return (double)of_bits((uint32_t)((const uint16_t*)t->data)[at] << 16);
}

static inline void store(const attncheck_tensor* t, int64_t at, double x) {
    x = stored(t->dtype, x);
    if (t->dtype == ATTNCHECK_FLOAT16) ((uint16_t*)t->data)[at] = half_bits(x);
    else if (t->dtype == ATTNCHECK_FLOAT32) ((float*)t->data)[at] = (float)x;
    else ((uint16_t*)t->data)[at] = (uint16_t)(bits_of((float)x) >> 16);
}

/* A row of numbers behind offset `at`, with the stride of the last dimension. */
static inline void load_row(const attncheck_tensor* t, int64_t at, double* to) {
    for (int64_t d = 0; d < t->shape[t->rank - 1]; ++d) to[d] = load(t, at + d * t->strides[t->rank - 1]);
}
static inline void store_row(const attncheck_tensor* t, int64_t at, const double* from) {
    for (int64_t d = 0; d < t->shape[t->rank - 1]; ++d) store(t, at + d * t->strides[t->rank - 1], from[d]);
}
/* Eight copies of a statistic. */
static inline void store_statistic(const attncheck_tensor* t, int64_t at, double x) {
    for (int64_t c = 0; t->data && c < 8; ++c) store(t, at + c * t->strides[t->rank - 1], x);
}

static inline double dot(const double* a, const double* b, int64_t width) {
    double sum = 0;
    for (int64_t d = 0; d < width; ++d) sum += a[d] * b[d];
    return sum;
}

#endif
