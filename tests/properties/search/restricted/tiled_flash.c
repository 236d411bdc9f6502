// A FlashAttention kernel of the usual kind and the usual limits: BSND and TND, fp16 and bf16, causal, window or no
// mask, grouped heads, head dimensions 64 and 128 (with DEFECT 2: multiples of 16 up to 128), rows of 64 keys at a
// time. It declines everything else. DEFECT 1 to 5 plants one mistake; 0 is correct. OUTPUT_ONLY: without statistics.
// Written as such kernels are: it is what the suite has to judge although it takes one case of a thousand.
#include <attncheck/candidate.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef DEFECT
#define DEFECT 0
#endif

enum { kTile = 64 };

ATTNCHECK_EXPORT uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
ATTNCHECK_EXPORT const char* attncheck_candidate_name(void) { return "tiled flash"; }
ATTNCHECK_EXPORT const char* attncheck_precision(void) {
    return "acc=fp32 p=half ds=half sum=fp32";
}
#ifdef OUTPUT_ONLY
ATTNCHECK_EXPORT const char* attncheck_features(void) {
    return "flash_attention_score: outputs=attention_out";
}
#endif

static float bits_to_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t float_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static float slow_load(uint16_t h, int dtype) {
    if (dtype == ATTNCHECK_BFLOAT16) return bits_to_float((uint32_t)h << 16);
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    float f = exponent == 0    ? ldexpf((float)fraction, -24)
              : exponent == 31 ? (fraction ? NAN : INFINITY)
                               : ldexpf((float)(fraction + 1024), exponent - 25);
    return h >> 15 ? -f : f;
}

static float values[2][1 << 16];

__attribute__((constructor)) static void fill_values(void) {
    for (uint32_t h = 0; h < 1 << 16; ++h) {
        values[0][h] = slow_load((uint16_t)h, ATTNCHECK_FLOAT16);
        values[1][h] = slow_load((uint16_t)h, ATTNCHECK_BFLOAT16);
    }
}

static float load(const void* data, int dtype, int64_t at) {
    return values[dtype == ATTNCHECK_BFLOAT16][((const uint16_t*)data)[at]];
}

static uint16_t to_half(float f, int dtype) {
    const uint32_t bits = float_to_bits(f);
    if (dtype == ATTNCHECK_BFLOAT16) {
        if (f != f) return 0x7FC0;
        return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float size = fabsf(f);
    if (f != f) return 0x7E00;
    if (size >= 65520.0f) return sign | 0x7C00;
    if (size < 0x1p-14f) return sign | (uint16_t)lrintf(size * 0x1p24f);
    const uint32_t rounded = float_to_bits(size) + 0xFFF + (float_to_bits(size) >> 13 & 1);
    return sign | (uint16_t)((rounded - (112u << 23)) >> 13);
}
static void store(void* data, int dtype, int64_t at, float f) {
    ((uint16_t*)data)[at] = to_half(f, dtype);
}
static float rounded(float f, int dtype) {
    const uint16_t h = to_half(f, dtype);
    return load(&h, dtype, 0);
}

typedef struct View {
    float* data; /* of an output NULL */
    int64_t row, head;
} View;

typedef struct Problem {
    int dtype, packed;
    int64_t sequences, q_length, kv_length, heads, kv_heads, dim, left, right;
    const int64_t *q_ends, *kv_ends;
    double scale;
    int bounded;
} Problem;

static int is_dense(const attncheck_tensor* t) {
    int64_t stride = 1;
    for (int d = t->rank - 1; d >= 0; --d) {
        if (t->shape[d] != 1 && t->strides[d] != stride) return 0;
        stride *= t->shape[d];
    }
    return 1;
}

/* Where the rows of an output lie. */
static View view(const attncheck_tensor* t) {
    const int64_t heads = t->shape[t->rank - 2], width = t->shape[t->rank - 1];
    return (View){NULL, heads * width, width};
}

/* An input as floats, to be freed: a row is read once for every row of the other side. */
static View decoded(const attncheck_tensor* t) {
    int64_t count = 1;
    for (int d = 0; d < t->rank; ++d) count *= t->shape[d];
    View v = view(t);
    v.data = malloc(sizeof(float) * (size_t)(count + 1));
    for (int64_t n = 0; n < count; ++n) v.data[n] = load(t->data, t->dtype, n);
    return v;
}

static int takes_dim(int64_t dim) {
#if DEFECT == 2
    return dim % 16 == 0 && dim <= 128;
#else
    return dim == 64 || dim == 128;
#endif
}

static int read_problem(const attncheck_tensor* query, const attncheck_tensor* key,
                        const attncheck_tensor* value, const char* layout, int64_t head_num,
                        const attncheck_tensor* mask, int64_t sparse, int64_t pre, int64_t next,
                        const attncheck_int_array* q_ends, const attncheck_int_array* kv_ends,
                        double scale, Problem* p) {
    if (!query->data || !key->data || !value->data || !layout) return 0;
    const int rank = strcmp(layout, "BSND") == 0 ? 4 : strcmp(layout, "TND") == 0 ? 3 : 0;
    if (rank == 0 || query->rank != rank || key->rank != rank || value->rank != rank) return 0;
    if (query->dtype != ATTNCHECK_FLOAT16 && query->dtype != ATTNCHECK_BFLOAT16) return 0;
    if (key->dtype != query->dtype || value->dtype != query->dtype) return 0;
    if (!is_dense(query) || !is_dense(key) || !is_dense(value)) return 0;
    p->dtype = query->dtype;
    p->packed = rank == 3;
    p->heads = query->shape[rank - 2];
    p->kv_heads = key->shape[rank - 2];
    p->dim = query->shape[rank - 1];
    if (!takes_dim(p->dim) || key->shape[rank - 1] != p->dim || value->shape[rank - 1] != p->dim)
        return 0;
    if (p->heads != head_num || p->kv_heads < 1 || p->heads % p->kv_heads != 0) return 0;
    p->scale = scale;
    if (p->packed) {
        if (!q_ends->values || !kv_ends->values || q_ends->size != kv_ends->size ||
            q_ends->size < 1)
            return 0;
        p->sequences = q_ends->size;
        p->q_ends = q_ends->values;
        p->kv_ends = kv_ends->values;
        if (p->q_ends[p->sequences - 1] != query->shape[0] ||
            p->kv_ends[p->sequences - 1] != key->shape[0])
            return 0;
        for (int64_t b = 0; b < p->sequences; ++b)  // no empty sequences
            if (p->q_ends[b] <= (b ? p->q_ends[b - 1] : 0) ||
                p->kv_ends[b] <= (b ? p->kv_ends[b - 1] : 0))
                return 0;
    } else {
        p->sequences = query->shape[0];
        p->q_length = query->shape[1];
        p->kv_length = key->shape[1];
        if (p->q_length < 1 || p->kv_length < 1 || key->shape[0] != p->sequences) return 0;
    }
    p->bounded = mask->data != NULL;
    if (!p->bounded) return sparse == 0;
    if (mask->dtype != ATTNCHECK_BOOL || (sparse != 3 && sparse != 4) || !is_dense(mask)) return 0;
    p->left = sparse == 3 || pre > INT32_MAX ? INT32_MAX : pre;
    p->right = sparse == 3 ? 0 : next > INT32_MAX ? INT32_MAX : next;
    return sparse == 3 || (pre >= 0 && next >= 0);
}

static void bounds_of(const Problem* p, int64_t b, int64_t* q0, int64_t* q1, int64_t* k0,
                      int64_t* k1) {
    if (p->packed) {
        *q0 = b ? p->q_ends[b - 1] : 0, *q1 = p->q_ends[b];
        *k0 = b ? p->kv_ends[b - 1] : 0, *k1 = p->kv_ends[b];
    } else {
        *q0 = b * p->q_length, *q1 = *q0 + p->q_length;
        *k0 = b * p->kv_length, *k1 = *k0 + p->kv_length;
    }
}

static int visible(const Problem* p, int64_t i, int64_t j, int64_t queries, int64_t keys) {
    if (!p->bounded) return 1;
    const int64_t at = i + keys - queries;
    int64_t right = at + p->right;
#if DEFECT == 1
    if (j / kTile == (keys - 1) / kTile && keys > kTile)
        ++right;  // the last tile's mask is one key late
#endif
    return j >= at - p->left && j <= right;
}

static float scale_of(const Problem* p) {
#if DEFECT == 2
    int64_t power = 1;
    while (power < p->dim) power *= 2;
    return (float)(p->scale * sqrt((double)p->dim / (double)power));
#endif
    return (float)p->scale;
}

/* In sixteen partial sums; every head dimension is a multiple. */
static float product(const Problem* p, const float* a, const float* b) {
    float lanes[16] = {0}, sum = 0;
    for (int64_t d = 0; d < p->dim; d += 16)
        for (int c = 0; c < 16; ++c) lanes[c] += a[d + c] * b[d + c];
    for (int c = 0; c < 16; ++c) sum += lanes[c];
    return sum;
}
/* sum += x row */
static void add_row(const Problem* p, float* restrict sum, float x, const float* restrict row) {
    for (int64_t d = 0; d < p->dim; ++d) sum[d] += x * row[d];
}

/* Where the 8 equal statistics of a row begin. */
static int64_t statistic(const Problem* p, int64_t b, int64_t q0, int64_t i, int64_t h,
                         int64_t queries, int same) {
    if (!p->packed) return ((b * p->heads + h) * queries + i) * 8;
    if (same) return ((q0 + i) * p->heads + h) * 8;
    return (q0 * p->heads + h * queries + i) * 8;
}

ATTNCHECK_EXPORT int attncheck_flash_attention_score(
    const attncheck_flash_attention_score_args* a) {
    Problem p;
    if (a->query_rope.data || a->key_rope.data || a->real_shift.data || a->drop_mask.data ||
        a->padding_mask.data || a->prefix.values || a->q_start_idx.values ||
        a->kv_start_idx.values || a->keep_prob != 1)
        return ATTNCHECK_DECLINED;
    if (!read_problem(&a->query, &a->key, &a->value, a->input_layout, a->head_num, &a->atten_mask,
                      a->sparse_mode, a->pre_tokens, a->next_tokens, &a->actual_seq_q_len,
                      &a->actual_seq_kv_len, a->scale_value, &p))
        return ATTNCHECK_DECLINED;
    if (!is_dense(&a->attention_out)) return ATTNCHECK_DECLINED;
#ifdef OUTPUT_ONLY
    if (a->softmax_max.data || a->softmax_sum.data) return ATTNCHECK_DECLINED;
#else
    if (!is_dense(&a->softmax_max) || !is_dense(&a->softmax_sum)) return ATTNCHECK_DECLINED;
#endif
    const int same = a->softmax_out_layout && strcmp(a->softmax_out_layout, "same_as_input") == 0;
    const View q = decoded(&a->query), k = decoded(&a->key), v = decoded(&a->value),
               o = view(&a->attention_out);
    const float scale = scale_of(&p);
    float* out = malloc(sizeof(float) * (size_t)p.dim);
    for (int64_t b = 0; b < p.sequences; ++b) {
        int64_t q0, q1, k0, k1;
        bounds_of(&p, b, &q0, &q1, &k0, &k1);
        for (int64_t i = 0; i < q1 - q0; ++i)
            for (int64_t h = 0; h < p.heads; ++h) {
                const int64_t g = h / (p.heads / p.kv_heads);
                float max = -INFINITY, sum = 0;
                memset(out, 0, sizeof(float) * (size_t)p.dim);
                for (int64_t t = 0; t < k1 - k0; t += kTile) {
                    float s[kTile], top = max;
                    char seen[kTile];
                    const int64_t count = k1 - k0 - t < kTile ? k1 - k0 - t : kTile;
                    for (int64_t j = 0; j < count; ++j) {
                        seen[j] = (char)visible(&p, i, t + j, q1 - q0, k1 - k0);
                        s[j] = seen[j] ? scale * product(&p, q.data + (q0 + i) * q.row + h * q.head,
                                                         k.data + (k0 + t + j) * k.row + g * k.head)
                                       : -INFINITY;
                        if (s[j] != s[j] || s[j] > top) top = s[j];  // NaN stays
                    }
                    if (top == -INFINITY) continue;
                    const float keep = max == -INFINITY ? 0 : expf(max - top);
                    sum *= keep;
#if DEFECT != 3
                    for (int64_t d = 0; d < p.dim; ++d) out[d] *= keep;
#endif
                    max = top;
                    for (int64_t j = 0; j < count; ++j) {
                        if (!seen[j]) continue;
                        const float e = expf(s[j] - max), w = rounded(e, p.dtype);
                        sum += e;
                        add_row(&p, out, w, v.data + (k0 + t + j) * v.row + g * v.head);
                    }
                }
                for (int64_t d = 0; d < p.dim; ++d)
                    store(a->attention_out.data, p.dtype, (q0 + i) * o.row + h * o.head + d,
                          sum == 0 ? 0 : out[d] / sum);
#ifdef OUTPUT_ONLY
                (void)same;
                continue;
#endif
                const int64_t at = statistic(&p, b, q0, i, h, q1 - q0, same);
                for (int c = 0; c < 8; ++c) {
                    ((float*)a->softmax_max.data)[at + c] = max == -INFINITY ? -FLT_MAX : max;
                    ((float*)a->softmax_sum.data)[at + c] = max == -INFINITY ? FLT_MAX : sum;
                }
            }
    }
    free(out), free(q.data), free(k.data), free(v.data);
    return 0;
}

ATTNCHECK_EXPORT int attncheck_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* a) {
    Problem p;
    if (a->query_rope.data || a->key_rope.data || a->pse_shift.data || a->drop_mask.data ||
        a->padding_mask.data || a->prefix.values || a->q_start_idx.values ||
        a->kv_start_idx.values || a->keep_prob != 1)
        return ATTNCHECK_DECLINED;
    if (!read_problem(&a->query, &a->key, &a->value, a->input_layout, a->head_num, &a->atten_mask,
                      a->sparse_mode, a->pre_tokens, a->next_tokens, &a->actual_seq_q_len,
                      &a->actual_seq_kv_len, a->scale_value, &p))
        return ATTNCHECK_DECLINED;
    const attncheck_tensor* rest[] = {&a->dy, &a->softmax_max, &a->softmax_sum, &a->attention_in,
                                      &a->dq, &a->dk,          &a->dv};
    for (int r = 0; r < 7; ++r)
        if (!rest[r]->data || !is_dense(rest[r])) return ATTNCHECK_DECLINED;
    if (a->dy.dtype != p.dtype || a->dq.dtype != p.dtype) return ATTNCHECK_DECLINED;
    const int same = a->softmax_in_layout && strcmp(a->softmax_in_layout, "same_as_input") == 0;
    const View q = decoded(&a->query), k = decoded(&a->key), v = decoded(&a->value),
               o = decoded(&a->attention_in), dy = decoded(&a->dy);
    const float scale = scale_of(&p);
    int64_t queries = p.packed ? a->query.shape[0] : p.sequences * p.q_length;
    int64_t keys = p.packed ? a->key.shape[0] : p.sequences * p.kv_length;
    float* sum_q = calloc((size_t)(queries * p.heads * p.dim), sizeof(float));
    float* sum_k = calloc((size_t)(keys * p.kv_heads * p.dim), sizeof(float));
    float* sum_v = calloc((size_t)(keys * p.kv_heads * p.dim), sizeof(float));
    for (int64_t b = 0; b < p.sequences; ++b) {
        int64_t q0, q1, k0, k1;
        bounds_of(&p, b, &q0, &q1, &k0, &k1);
        for (int64_t i = 0; i < q1 - q0; ++i)
            for (int64_t h = 0; h < p.heads; ++h) {
                const int64_t g = h / (p.heads / p.kv_heads),
                              at = statistic(&p, b, q0, i, h, q1 - q0, same);
                const float max = ((const float*)a->softmax_max.data)[at],
                            sum = ((const float*)a->softmax_sum.data)[at];
                const float* const qi = q.data + (q0 + i) * q.row + h * q.head;
                float* const dqi = sum_q + ((q0 + i) * p.heads + h) * p.dim;
                int64_t row = i;
#if DEFECT == 4
                if (i % kTile == kTile - 1 && i + 1 < q1 - q0)
                    row = i + 1;  // delta of the row behind the tile
#endif
                const float* const yi = dy.data + (q0 + i) * dy.row + h * dy.head;
                const float delta = product(&p, dy.data + (q0 + row) * dy.row + h * dy.head,
                                            o.data + (q0 + row) * o.row + h * o.head);
                for (int64_t j = 0; j < k1 - k0; ++j) {
                    if (!visible(&p, i, j, q1 - q0, k1 - k0)) continue;
                    const float* const kj = k.data + (k0 + j) * k.row + g * k.head;
                    const float* const vj = v.data + (k0 + j) * v.row + g * v.head;
                    const int64_t e = ((k0 + j) * p.kv_heads + g) * p.dim;
                    const float weight = expf(scale * product(&p, qi, kj) - max) / sum;
                    const float ds = rounded(weight * (product(&p, yi, vj) - delta), p.dtype);
                    add_row(&p, dqi, ds, kj);
                    add_row(&p, sum_k + e, ds, qi);
#if DEFECT == 5
                    for (int64_t d = 0; d < p.dim; ++d)
                        sum_k[e + d] = rounded(sum_k[e + d], p.dtype);
#endif
                    add_row(&p, sum_v + e, rounded(weight, p.dtype), yi);
                }
            }
    }
    for (int64_t n = 0; n < queries * p.heads * p.dim; ++n)
        store(a->dq.data, p.dtype, n, scale * sum_q[n]);
    for (int64_t n = 0; n < keys * p.kv_heads * p.dim; ++n) {
        store(a->dk.data, p.dtype, n, scale * sum_k[n]);
        store(a->dv.data, p.dtype, n, sum_v[n]);
    }
    free(sum_q), free(sum_k), free(sum_v);
    free(q.data), free(k.data), free(v.data), free(o.data), free(dy.data);
    return 0;
}
