/* Correct kernels of compression, its gradient and the attention over compressed keys, in manners that the suite accused
 * once. ATTNCHECK_STYLE names the manner, attncheck_precision() declares it. They check no arguments. Nothing of impl/ or ref/. */
#include <float.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "correct_tensors.h"

typedef struct {
    const char *name, *precision;
    int fp64;    /* sums and probabilities in binary64: more range than fp32 */
    int rotates; /* every call begins its sums elsewhere, as atomics do */
    int pairs;   /* sums of halves, of quarters, ... */
    int lse;     /* the statistics are (LSE, 1) */
    int parts;   /* of the keys, merged by their stored LSE; P = exp(s - LSE) */
    int flush;   /* subnormal numbers of fp16 are 0 as they are read and written */
    int steps;   /* <q, k> is stored in the type of the inputs; a list takes NaN for the largest score */
} style;

static const style kStyles[] = {
    {.name = "range", .precision = "acc=fp32", .fp64 = 1},
    {.name = "atomics", .precision = "acc=fp32", .rotates = 1},
    {.name = "pairs", .precision = "acc=fp32 p=fp32", .pairs = 1},
    {.name = "lse_pair", .precision = "stats=lse", .fp64 = 1, .lse = 1},
    {.name = "split", .precision = "split=lse", .parts = 3},
    {.name = "steps", .precision = "steps=half", .steps = 1},
    {.name = "flush", .precision = "ftz=all", .flush = 1},
};

static const style* the_style(void) {
    const char* name = getenv("ATTNCHECK_STYLE");
    for (size_t i = 0; name && i < sizeof kStyles / sizeof *kStyles; ++i)
        if (!strcmp(kStyles[i].name, name)) return &kStyles[i];
    return &kStyles[0];
}

/* ---- sums ---- */

static double rounded(const style* s, double x) { return s->fp64 ? x : (double)(float)x; }

/* Of a[i] b[i], with strides. */
static double sum_of(const style* s, const double* a, int64_t a_step, const double* b, int64_t b_step, int64_t count, int64_t first) {
    if (s->pairs && count > 8) {
        const int64_t half = count / 2;
        return rounded(s, sum_of(s, a, a_step, b, b_step, half, 0) +
                              sum_of(s, a + half * a_step, a_step, b + half * b_step, b_step, count - half, 0));
    }
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = (i + first) % count;
        sum = rounded(s, sum + rounded(s, a[at * a_step] * b[at * b_step]));
    }
    return sum;
}

static atomic_uint calls;
static int64_t first_of_call(const style* s) { return s->rotates ? (int64_t)(atomic_fetch_add(&calls, 5) % 64) : 0; }

/* flush: subnormal numbers are 0. */
static double* flushed(double* all, int32_t type, int64_t count) {
    const double least = type == ATTNCHECK_FLOAT16 ? 0x1p-14 : 0x1p-126;
    for (int64_t i = 0; all && the_style()->flush && i < count; ++i)
        if (fabs(all[i]) < least) all[i] = 0;
    return all;
}

/* A tensor of three dimensions, dense; NULL without memory. */
static double* dense(const attncheck_tensor* t) {
    double* all = calloc((size_t)(t->shape[0] * t->shape[1] * t->shape[2]) + 1, sizeof *all);
    for (int64_t i = 0; all && i < t->shape[0]; ++i)
        for (int64_t n = 0; n < t->shape[1]; ++n)
            load_row(t, i * t->strides[0] + n * t->strides[1], all + (i * t->shape[1] + n) * t->shape[2]);
    return flushed(all, t->dtype, t->shape[0] * t->shape[1] * t->shape[2]);
}
/* [l, N] as [N, l]. */
static double* weights_of(const attncheck_tensor* w) {
    double* all = calloc((size_t)(w->shape[0] * w->shape[1]) + 1, sizeof *all);
    for (int64_t r = 0; all && r < w->shape[0]; ++r)
        for (int64_t n = 0; n < w->shape[1]; ++n)
            all[n * w->shape[0] + r] = load(w, r * w->strides[0] + n * w->strides[1]);
    return flushed(all, w->dtype, w->shape[0] * w->shape[1]);
}
static void store_dense(const attncheck_tensor* t, double* all) {
    flushed(all, t->dtype, t->shape[0] * t->shape[1] * t->shape[2]);
    for (int64_t i = 0; i < t->shape[0]; ++i)
        for (int64_t n = 0; n < t->shape[1]; ++n)
            store_row(t, i * t->strides[0] + n * t->strides[1], all + (i * t->shape[1] + n) * t->shape[2]);
}

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return the_style()->name; }
const char* attncheck_precision(void) { return the_style()->precision; }

/* ---- compression ---- */

static int64_t blocks_of(int64_t length, int64_t block, int64_t stride) {
    return length < block ? 0 : (length - block) / stride + 1;
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* a) {
    const style* s = the_style();
    const int64_t heads = a->input.shape[1], dim = a->input.shape[2], length = a->compress_block_size;
    double *x = dense(&a->input), *w = weights_of(&a->weight), *y = dense(&a->output);
    if (!x || !w || !y) return ATTNCHECK_ERR_INTERNAL;
    const int64_t first = first_of_call(s);
    memset(y, 0, (size_t)(a->output.shape[0] * heads * dim) * sizeof *y);
    int64_t row = 0;
    for (int64_t b = 0, begin = 0; b < a->act_seq_len.size; begin = a->act_seq_len.values[b++]) {
        const int64_t blocks = blocks_of(a->act_seq_len.values[b] - begin, length, a->compress_stride);
        for (int64_t j = 0; j < blocks; ++j, ++row)
            for (int64_t n = 0; n < heads; ++n)
                for (int64_t c = 0; c < dim; ++c)
                    y[(row * heads + n) * dim + c] =
                        sum_of(s, x + ((begin + j * a->compress_stride) * heads + n) * dim + c, heads * dim, w + n * length, 1,
                               length, first);
    }
    store_dense(&a->output, y);
    free(x), free(w), free(y);
    return ATTNCHECK_OK;
}

int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* a) {
    const style* s = the_style();
    const int64_t heads = a->input.shape[1], dim = a->input.shape[2], length = a->compress_block_size, step = a->compress_stride;
    const int64_t whole = a->input.shape[0], sequences = a->act_seq_len.values ? a->act_seq_len.size : 1;
    const int64_t* ends = a->act_seq_len.values ? a->act_seq_len.values : &whole;
    double *x = dense(&a->input), *w = weights_of(&a->weight), *dy = dense(&a->output_grad), *dx = dense(&a->input_grad),
           *dw = calloc((size_t)(length * heads) + 1, sizeof *dw);
    if (!x || !w || !dy || !dx || !dw) return ATTNCHECK_ERR_INTERNAL;
    memset(dx, 0, (size_t)(whole * heads * dim) * sizeof *dx);
    const int64_t first = first_of_call(s);
    int64_t row = 0;
    for (int64_t b = 0, begin = 0; b < sequences; begin = ends[b++]) {
        const int64_t blocks = blocks_of(ends[b] - begin, length, step);
        for (int64_t k = 0; k < blocks; ++k) {
            const int64_t j = (k + first) % blocks;
            for (int64_t n = 0; n < heads; ++n)
                for (int64_t r = 0; r < length; ++r) {
                    const int64_t at = ((begin + j * step + r) * heads + n) * dim;
                    const double* g = dy + ((row + j) * heads + n) * dim;
                    for (int64_t c = 0; c < dim; ++c)
                        dx[at + c] = rounded(s, dx[at + c] + rounded(s, w[n * length + r] * g[c]));
                    double* sum = dw + r * heads + n;
                    *sum = rounded(s, *sum + sum_of(s, g, 1, x + at, 1, dim, first));
                }
        }
        row += blocks;
    }
    store_dense(&a->input_grad, dx);
    flushed(dw, a->weight_grad.dtype, length * heads);
    for (int64_t r = 0; r < length; ++r)
        for (int64_t n = 0; n < heads; ++n)
            store(&a->weight_grad, r * a->weight_grad.strides[0] + n * a->weight_grad.strides[1], dw[r * heads + n]);
    free(x), free(w), free(dy), free(dx), free(dw);
    return ATTNCHECK_OK;
}

/* ---- attention over compressed keys ---- */

typedef struct {
    const attncheck_nsa_compress_attention_args* a;
    const style* s;
    int64_t heads, group, dim, value_dim, first_query, queries, first_key, keys, first;
    double *q, *k, *v, *prob, *score, *sum; /* prob [keys], score [candidates] */
} compressed;

static double exponential(const style* s, double x) { return s->fp64 ? exp(x) : (double)expf((float)x); }
static double logarithm(const style* s, double x) { return s->fp64 ? log(x) : (double)logf((float)x); }

/* Logits in `prob`; hidden ones are -infinity. The number of visible keys. */
static int64_t logits_of(const compressed* p, int64_t i, int64_t n) {
    const attncheck_tensor* mask = &p->a->atten_mask;
    const double scale = (double)(float)p->a->scale_value;
    int64_t visible = 0;
    for (int64_t j = 0; j < p->keys; ++j) {
        p->prob[j] = -INFINITY;
        if (mask->data && ((const uint8_t*)mask->data)[i * mask->strides[0] + j * mask->strides[1]]) continue;
        double dot = sum_of(p->s, p->q + ((p->first_query + i) * p->heads + n) * p->dim, 1,
                                  p->k + ((p->first_key + j) * (p->heads / p->group) + n / p->group) * p->dim, 1, p->dim, 0);
        if (p->s->steps) dot = stored(p->a->query.dtype, dot);
        p->prob[j] = rounded(p->s, dot * scale);
        ++visible;
    }
    return visible;
}

static int is_hidden(const compressed* p, int64_t i, int64_t j) {
    const attncheck_tensor* mask = &p->a->atten_mask;
    return mask->data && ((const uint8_t*)mask->data)[i * mask->strides[0] + j * mask->strides[1]];
}

/* Maximum and sum of exponentials of keys [from, to). */
static void statistics_of(const compressed* p, int64_t i, int64_t from, int64_t to, double* max, double* sum) {
    *max = -INFINITY, *sum = 0;
    for (int64_t j = from; j < to; ++j) /* a NaN stays */
        if (*max == *max && !(p->prob[j] <= *max)) *max = p->prob[j];
    for (int64_t k = 0; k < to - from; ++k) {
        const int64_t j = from + (k + p->first) % (to - from);
        if (!is_hidden(p, i, j)) *sum = rounded(p->s, *sum + exponential(p->s, rounded(p->s, p->prob[j] - *max)));
    }
}

/* LSE of the parts' stored LSE. */
static double merged(const compressed* p, int64_t i) {
    double lse[3], top = -INFINITY, total = 0;
    for (int64_t c = 0; c < 3; ++c) {
        double max, sum;
        statistics_of(p, i, c * p->keys / 3, (c + 1) * p->keys / 3, &max, &sum);
        lse[c] = sum == 0 ? -INFINITY : rounded(p->s, max + logarithm(p->s, sum));
        if (top == top && !(lse[c] <= top)) top = lse[c];
    }
    for (int64_t c = 0; c < 3; ++c)
        if (lse[c] != -INFINITY) total = rounded(p->s, total + exponential(p->s, rounded(p->s, lse[c] - top)));
    return rounded(p->s, top + logarithm(p->s, total));
}

/* The statistics lie per sequence as [heads, queries] over the rows [T1, N1]. */
static void store_pair(const compressed* p, int64_t i, int64_t n, double max, double sum) {
    const int64_t place = p->first_query * p->heads + n * p->queries + i, t = place / p->heads, head = place % p->heads;
    const attncheck_tensor *to_max = &p->a->softmax_max, *to_sum = &p->a->softmax_sum;
    store_statistic(to_max, t * to_max->strides[0] + head * to_max->strides[1], max);
    store_statistic(to_sum, t * to_sum->strides[0] + head * to_sum->strides[1], sum);
}

/* P of a row in `prob`, its statistics and its output. */
static void attend(const compressed* p, int64_t i, int64_t n) {
    const style* s = p->s;
    double max = -FLT_MAX, sum = FLT_MAX;
    memset(p->sum, 0, (size_t)p->value_dim * sizeof *p->sum);
    const int64_t visible = logits_of(p, i, n);
    if (visible == 0) {
        memset(p->prob, 0, (size_t)p->keys * sizeof *p->prob);
    } else {
        statistics_of(p, i, 0, p->keys, &max, &sum);
        const double lse = s->parts ? merged(p, i) : 0;
        for (int64_t j = 0; j < p->keys; ++j) {
            if (is_hidden(p, i, j)) p->prob[j] = 0;
            else if (s->parts) p->prob[j] = exponential(s, rounded(s, p->prob[j] - lse));
            else p->prob[j] = rounded(s, exponential(s, rounded(s, p->prob[j] - max)) / sum);
        }
        for (int64_t k = 0; k < p->keys; ++k) {
            const int64_t j = (k + p->first) % p->keys;
            if (is_hidden(p, i, j)) continue;
            const double* v = p->v + ((p->first_key + j) * (p->heads / p->group) + n / p->group) * p->value_dim;
            for (int64_t d = 0; d < p->value_dim; ++d) p->sum[d] = rounded(s, p->sum[d] + rounded(s, p->prob[j] * v[d]));
        }
        if (s->lse) max += logarithm(s, sum), sum = 1;
    }
    store_pair(p, i, n, max, sum);
    store_row(&p->a->attention_out, (p->first_query + i) * p->a->attention_out.strides[0] + n * p->a->attention_out.strides[1], p->sum);
}

/* The blocks of the highest scores, forced ones first, the smaller number first where two are equal. */
static void store_list(const compressed* p, int64_t i, int64_t kv_head, int64_t candidates) {
    const attncheck_tensor *mask = &p->a->topk_mask, *to = &p->a->topk_indices;
    for (int64_t j = 0; mask->data && j < candidates; ++j)
        if (((const uint8_t*)mask->data)[i * mask->strides[0] + j * mask->strides[1]]) p->score[j] = INFINITY;
    for (int64_t c = 0; c < to->shape[2]; ++c) {
        int64_t best = -1;
        for (int64_t j = 0; j < candidates; ++j) {
            if (p->score[j] == -INFINITY) continue; /* taken */
            const int is_nan = p->score[j] != p->score[j], best_is_nan = best >= 0 && p->score[best] != p->score[best];
            if (best < 0 || p->score[j] > p->score[best] || (p->s->steps ? is_nan && !best_is_nan : best_is_nan && !is_nan)) best = j;
        }
        ((int32_t*)to->data)[(p->first_query + i) * to->strides[0] + kv_head * to->strides[1] + c * to->strides[2]] = (int32_t)best;
        if (best >= 0) p->score[best] = -INFINITY;
    }
}

static void attend_sequence(const compressed* p) {
    const int64_t m_count = p->a->select_block_size / p->a->compress_stride, n_count = p->a->compress_block_size / p->a->compress_stride;
    const int64_t candidates = (p->keys + m_count - 1) / m_count;
    for (int64_t i = 0; i < p->queries; ++i)
        for (int64_t n = 0; n < p->heads; ++n) {
            attend(p, i, n);
            if (n % p->group == 0) memset(p->score, 0, (size_t)candidates * sizeof *p->score);
            for (int64_t j = 0; j < candidates; ++j) {
                double sum = 0;
                for (int64_t m = 0; m < m_count; ++m)
                    for (int64_t r = 0; r < n_count; ++r) {
                        const int64_t at = m_count * (j + 1) - m - r;
                        if (at >= 0 && at < p->keys) sum = rounded(p->s, sum + p->prob[at]);
                    }
                p->score[j] = rounded(p->s, p->score[j] + sum);
            }
            if ((n + 1) % p->group == 0) store_list(p, i, n / p->group, candidates);
        }
}

/* Rows behind the last sequence are 0. */
static void clear_rows(const attncheck_nsa_compress_attention_args* a, int64_t from) {
    double* zeros = calloc((size_t)a->attention_out.shape[2] + 8, sizeof *zeros);
    for (int64_t t = from; zeros && t < a->query.shape[0]; ++t) {
        for (int64_t n = 0; n < a->query.shape[1]; ++n) {
            store_row(&a->attention_out, t * a->attention_out.strides[0] + n * a->attention_out.strides[1], zeros);
            store_statistic(&a->softmax_max, t * a->softmax_max.strides[0] + n * a->softmax_max.strides[1], 0);
            store_statistic(&a->softmax_sum, t * a->softmax_sum.strides[0] + n * a->softmax_sum.strides[1], 0);
        }
        const attncheck_tensor* to = &a->topk_indices;
        for (int64_t n = 0; n < to->shape[1]; ++n)
            for (int64_t c = 0; c < to->shape[2]; ++c)
                ((int32_t*)to->data)[t * to->strides[0] + n * to->strides[1] + c * to->strides[2]] = 0;
    }
    free(zeros);
}

int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* a) {
    compressed p = {.a = a, .s = the_style(), .heads = a->query.shape[1], .dim = a->query.shape[2], .value_dim = a->value.shape[2]};
    p.group = p.heads / a->key.shape[1];
    p.first = first_of_call(p.s);
    p.q = dense(&a->query), p.k = dense(&a->key), p.v = dense(&a->value);
    p.prob = calloc((size_t)(2 * a->key.shape[0] + p.value_dim) + 1, sizeof *p.prob);
    if (!p.q || !p.k || !p.v || !p.prob) return ATTNCHECK_ERR_INTERNAL;
    p.score = p.prob + a->key.shape[0], p.sum = p.score + a->key.shape[0];
    for (int64_t b = 0; b < a->actual_seq_q_len.size; ++b) {
        p.queries = a->actual_seq_q_len.values[b] - p.first_query, p.keys = a->actual_cmp_seq_kv_len.values[b] - p.first_key;
        attend_sequence(&p);
        p.first_query += p.queries, p.first_key += p.keys;
    }
    clear_rows(a, p.first_query);
    free(p.q), free(p.k), free(p.v), free(p.prob);
    return ATTNCHECK_OK;
}
