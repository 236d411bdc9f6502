/* Correct kernels of many manners: Attention and its gradient, padded, with windows and lengths. ATTNCHECK_STYLE names the manner,
 * and attncheck_precision() declares it. None of them may be accused. A row at a time, nothing of impl/ or ref/. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "correct_numbers.h"

/* ---- manners ---- */

typedef struct {
    const char *name, *precision;
    int parts;          /* of the keys, merged by their stored LSE */
    int stored_parts;   /* and their outputs in the type of the inputs */
    int fp64;           /* sums and exponentials in binary64, rounded once at the end */
    int hidden;         /* hidden keys are multiplied by P = 0 */
    int rotates;        /* every call adds the queries of a key in another order, as atomics do */
    int tiles;          /* another tile for another address and layout */
    int tf32, cut, bf16x2; /* factors of fp32 products; cut: tf32 by truncation */
    int scores, delta, group; /* stored in the type of the inputs */
    int flushes;        /* subnormal numbers are zero */
    int scaled_query;   /* q takes the scale, stored in the type of the inputs */
    int root_scale;     /* q and k take the root of the scale, in fp32 */
    int spreads;        /* tiles before the first logit above -infinity are multiplied by 0, others do not read them */
    int own;            /* a gradient forms the LSE, and delta as the sum of P dP */
    int keeps;          /* P is stored in the type of the inputs, dS is made of that and stored, too */
    int scaled_grad;    /* dS takes the scale, stored in the type of the inputs */
    int steps;          /* <q, k>, its product with the scale, P, dP and dS are stored in the type of the inputs */
    double exp_error;   /* relative error of an exponential */
} style;

static const style kStyles[] = {
    {.name = "plain", .precision = "acc=fp32"},
    {.name = "composition", .precision = "acc=fp32", .fp64 = 1},
    {.name = "atomics", .precision = "acc=fp32", .rotates = 1},
    {.name = "tiles", .precision = "acc=fp32", .tiles = 1},
    {.name = "times_zero", .precision = "hidden=times_zero", .hidden = 1},
    {.name = "split", .precision = "split=lse", .parts = 3},
    {.name = "split_half", .precision = "split=half", .parts = 3, .stored_parts = 1},
    {.name = "fast_exp", .precision = "exp=34", .exp_error = 2e-6},
    {.name = "cubic_exp", .precision = "exp=1600", .exp_error = 9e-5},
    {.name = "tf32", .precision = "in=tf32", .tf32 = 1},
    {.name = "tf32_cut", .precision = "in=tf32-truncating", .cut = 1},
    {.name = "bf16x2", .precision = "in=bf16x2", .bf16x2 = 1},
    {.name = "half_scores", .precision = "scores=half", .scores = 1},
    {.name = "half_delta", .precision = "delta=half", .delta = 1},
    {.name = "half_group", .precision = "group=half", .group = 1},
    {.name = "scaled_query", .precision = "scale=half", .scaled_query = 1},
    {.name = "root_scale", .precision = "scale=fp32", .root_scale = 1},
    {.name = "flush", .precision = "ftz=all", .flushes = 1},
    {.name = "spreads", .precision = "acc=fp32", .spreads = 1},
    {.name = "own", .precision = "forward=own", .own = 1},
    {.name = "scaled_grad", .precision = "ds=half order=fixed", .scaled_grad = 1},
    {.name = "keeps", .precision = "p=kept order=fixed", .keeps = 1},
    {.name = "steps", .precision = "steps=half group=half forward=own", .steps = 1, .own = 1, .scaled_grad = 1, .group = 1},
    {.name = "steps_times_zero", .precision = "steps=half group=half forward=own hidden=times_zero", .steps = 1, .own = 1,
     .scaled_grad = 1, .group = 1, .hidden = 1},
};

static const style* the_style(void) {
    const char* name = getenv("ATTNCHECK_STYLE");
    for (size_t i = 0; name && i < sizeof kStyles / sizeof *kStyles; ++i)
        if (!strcmp(kStyles[i].name, name)) return &kStyles[i];
    return &kStyles[0];
}

/* ---- numbers ---- */

static double least_normal(int32_t type) { return type == ATTNCHECK_FLOAT16 ? 0x1p-14 : 0x1p-126; }

static double flushed(const style* s, int32_t type, double x) {
    return s->flushes && fabs(x) < least_normal(type) ? 0 : x;
}

static double load(const style* s, const attncheck_tensor* t, int64_t at) {
    double x;
    if (t->dtype == ATTNCHECK_FLOAT16) x = of_half(((const uint16_t*)t->data)[at]);
    else if (t->dtype == ATTNCHECK_FLOAT32) x = (double)((const float*)t->data)[at];
    else x = (double)of_bits((uint32_t)((const uint16_t*)t->data)[at] << 16);
    return flushed(s, t->dtype, x);
}

static void store(const style* s, const attncheck_tensor* t, int64_t at, double x) {
    x = flushed(s, t->dtype, stored(t->dtype, x));
    if (t->dtype == ATTNCHECK_FLOAT16) ((uint16_t*)t->data)[at] = half_bits(x);
    else if (t->dtype == ATTNCHECK_FLOAT32) ((float*)t->data)[at] = (float)x;
    else ((uint16_t*)t->data)[at] = (uint16_t)(bits_of((float)x) >> 16);
}

/* A sum or product as the style has it. */
static double rounded(const style* s, double x) { return s->fp64 ? x : (double)(float)x; }
/* A factor of a product of fp32 tensors. */
static double factor(const style* s, int32_t type, double x) {
    if (type != ATTNCHECK_FLOAT32) return x;
    if (s->tf32) return shortened((float)x, 10);
    if (s->cut) return (double)of_bits(bits_of((float)x) & 0xffffe000u);
    if (!s->bf16x2) return x;
    const float high = shortened((float)x, 7);
    return x != x || fabs(x) == INFINITY ? x : (double)high + (double)shortened((float)x - high, 7);
}

static double exponential(const style* s, double x) {
    if (s->fp64) return exp(x);
    const float e = expf((float)x);
    const uint32_t noise = (bits_of((float)x) * 2654435761u) >> 8; /* a function of x */
    return (double)(float)((double)e * (1 + s->exp_error * ((double)noise * 0x1p-23 - 1)));
}

/* ---- the problem ---- */

typedef struct {
    const style* s;
    const attncheck_tensor *query, *key, *value, *lse;
    int64_t queries, keys, heads, group, dim, value_dim, left, right, corner, batch;
    int32_t type;
    double scale, dq_scale, dk_scale; /* of scores, dQ and dK */
    double *q, *k, *v, *dout; /* as factors of products, dense */
    const int64_t* lengths;   /* keys in use of every batch; NULL: all */
} problem;

static int64_t row(const attncheck_tensor* t, int64_t b, int64_t position, int64_t head) {
    return b * t->strides[0] + position * t->strides[1] + head * t->strides[2];
}

/* A tensor [B,S,H,D] as factors; NULL without memory. */
static double* factors_of(const style* s, const attncheck_tensor* t) {
    const int64_t width = t->shape[3], rows = t->shape[0] * t->shape[1] * t->shape[2];
    double* all = malloc((size_t)(rows * width + 1) * sizeof *all);
    for (int64_t r = 0; all && r < rows; ++r) {
        const int64_t h = r % t->shape[2], i = r / t->shape[2] % t->shape[1], b = r / t->shape[2] / t->shape[1];
        for (int64_t d = 0; d < width; ++d)
            all[r * width + d] = factor(s, t->dtype, load(s, t, row(t, b, i, h) + d * t->strides[3]));
    }
    return all;
}

static void multiply(double* all, const attncheck_tensor* t, int32_t type, double by) {
    const int64_t count = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    for (int64_t i = 0; all && i < count; ++i) all[i] = stored(type, (double)(float)(all[i] * by));
}

/* The scale is in q, or its root in q and k: dK and dQ are sums with what they are then. */
static void scale_inputs(problem* p) {
    if (p->s->scaled_query) {
        multiply(p->q, p->query, p->type, p->scale);
        p->scale = p->dk_scale = 1;
    } else if (p->s->root_scale) {
        const double root = (double)(float)sqrt(fabs(p->scale)), sign = p->scale < 0 ? -1 : 1;
        multiply(p->q, p->query, ATTNCHECK_FLOAT32, root), multiply(p->k, p->key, ATTNCHECK_FLOAT32, root);
        p->scale = sign, p->dq_scale = p->dk_scale = sign * root;
    }
}

static problem problem_of(const attncheck_tensor* q, const attncheck_tensor* k, const attncheck_tensor* v, double scale,
                          int64_t left, int64_t right, int64_t align) {
    problem p = {.s = the_style(), .query = q, .key = k, .value = v, .type = q->dtype, .scale = (double)(float)scale};
    p.dq_scale = p.dk_scale = p.s->scaled_grad ? 1 : p.scale;
    p.batch = q->shape[0], p.queries = q->shape[1], p.heads = q->shape[2], p.dim = q->shape[3];
    p.keys = k->shape[1], p.group = p.heads / k->shape[2], p.value_dim = v->shape[3];
    p.left = left, p.right = right, p.corner = align == 1 ? p.keys - p.queries : 0;
    p.q = factors_of(p.s, q), p.k = factors_of(p.s, k), p.v = factors_of(p.s, v);
    scale_inputs(&p);
    return p;
}

static void release(problem* p) { free(p->q), free(p->k), free(p->v), free(p->dout); }

static const double* query_row(const problem* p, int64_t b, int64_t h, int64_t i) {
    return p->q + ((b * p->queries + i) * p->heads + h) * p->dim;
}
static const double* key_row(const problem* p, const double* of, int64_t b, int64_t h, int64_t j, int64_t width) {
    return of + ((b * p->keys + j) * (p->heads / p->group) + h / p->group) * width;
}

static int sees(const problem* p, int64_t b, int64_t i, int64_t j) {
    if (p->lengths && j >= p->lengths[b]) return 0;
    const int64_t from_diagonal = j - i - p->corner;
    return (p->left < 0 || from_diagonal >= -p->left) && (p->right < 0 || from_diagonal <= p->right);
}

/* Products of `a` with four rows. An addition waits for the one before it: those of four sums wait together. */
static void four_products(const problem* p, const double* a, const double* const b[4], int64_t width, double sum[4]) {
    for (int k = 0; k < 4; ++k) sum[k] = 0;
    if (p->s->fp64)
        for (int64_t d = 0; d < width; ++d)
            for (int k = 0; k < 4; ++k) sum[k] += a[d] * b[k][d];
    else
        for (int64_t d = 0; d < width; ++d)
            for (int k = 0; k < 4; ++k) sum[k] = (float)(sum[k] + a[d] * b[k][d]);
}

/* Products of `a` with the row of every key that query i sees, or of every key. */
static void products(const problem* p, int64_t b, int64_t h, int64_t i, int all, const double* a, const double* of, int64_t width,
                     double* out) {
    int64_t keys[4];
    for (int64_t j = 0, count = 0; j < p->keys; ++j) {
        if (all || sees(p, b, i, j)) keys[count++] = j;
        if (count == 0 || (count < 4 && j + 1 < p->keys)) continue;
        const double* rows[4];
        double sum[4];
        for (int64_t k = 0; k < 4; ++k) rows[k] = key_row(p, of, b, h, keys[k < count ? k : 0], width);
        four_products(p, a, rows, width, sum);
        for (int64_t k = 0; k < count; ++k) out[keys[k]] = sum[k];
        count = 0;
    }
}

/* sum += x row, with the rounding of sums. */
static void add_row(const problem* p, double* sum, double x, const double* of, int64_t width) {
    if (p->s->fp64)
        for (int64_t d = 0; d < width; ++d) sum[d] += x * of[d];
    else
        for (int64_t d = 0; d < width; ++d) sum[d] = (float)(sum[d] + x * of[d]);
}

/* Logits of a row; what is hidden is -infinity. */
static void logits_of(const problem* p, int64_t b, int64_t h, int64_t i, double* logit) {
    products(p, b, h, i, 0, query_row(p, b, h, i), p->k, p->dim, logit);
    for (int64_t j = 0; j < p->keys; ++j)
        if (!sees(p, b, i, j))
            logit[j] = -INFINITY;
        else
            logit[j] = p->s->steps ? stored(p->type, stored(p->type, logit[j]) * p->scale)
                       : p->s->scores ? stored(p->type, logit[j] * p->scale) : rounded(p->s, logit[j] * p->scale);
}

static double tile_of(const problem* p) {
    if (!p->s->tiles) return 32;
    return 16 << (((uintptr_t)p->query->data >> 4 & 1) + (p->query->strides[1] > p->query->strides[2]));
}

/* Online softmax over keys [from, to): the sums, the maximum and l. */
static void attend(const problem* p, int64_t b, int64_t h, int64_t i, const double* logit, int64_t from, int64_t to,
                   double* sum, double* max, double* l) {
    const style* s = p->s;
    const int64_t tile = (int64_t)tile_of(p);
    *max = -INFINITY, *l = 0;
    for (int64_t d = 0; d < p->value_dim; ++d) sum[d] = 0;
    for (int64_t begin = from; begin < to; begin += tile) {
        const int64_t end = begin + tile < to ? begin + tile : to;
        double higher = *max;
        for (int64_t j = begin; j < end; ++j)
            if (higher == higher && !(logit[j] <= higher)) higher = logit[j]; /* a NaN stays */
        if (higher == -INFINITY && !s->hidden && !s->spreads) continue;
        if (higher != *max && *max != -INFINITY) {
            const double correction = exponential(s, rounded(s, *max - higher));
            *l = rounded(s, *l * correction);
            for (int64_t d = 0; d < p->value_dim; ++d) sum[d] = rounded(s, sum[d] * correction);
        }
        *max = higher;
        for (int64_t j = begin; j < end; ++j) {
            const int shown = sees(p, b, i, j);
            if (!shown && !s->hidden) continue;
            const double e = shown && higher != -INFINITY ? exponential(s, rounded(s, logit[j] - higher)) : 0;
            *l = rounded(s, *l + e);
            add_row(p, sum, factor(s, p->type, e), key_row(p, p->v, b, h, j, p->value_dim), p->value_dim);
        }
    }
}

/* Of a composition: P is divided by its sum and stored before it meets the values. */
static double composed_row(const problem* p, int64_t b, int64_t h, int64_t i, const double* logit, double* out) {
    double max = -INFINITY, l = 0;
    for (int64_t d = 0; d < p->value_dim; ++d) out[d] = 0;
    for (int64_t j = 0; j < p->keys; ++j)
        if (sees(p, b, i, j) && max == max && !(logit[j] <= max)) max = logit[j]; /* a NaN stays */
    if (max == -INFINITY) return max;
    for (int64_t j = 0; j < p->keys; ++j)
        if (sees(p, b, i, j)) l = (float)(l + exponential(p->s, (float)(logit[j] - max)));
    for (int64_t j = 0; j < p->keys; ++j)
        if (sees(p, b, i, j) || p->s->hidden)
            add_row(p, out, sees(p, b, i, j) ? stored(p->type, (float)(exponential(p->s, (float)(logit[j] - max)) / l)) : 0,
                    key_row(p, p->v, b, h, j, p->value_dim), p->value_dim);
    return (double)(float)(max + (double)logf((float)l));
}

/* The output of a row, and its LSE. `room` holds two rows of the output. */
static double forward_row(const problem* p, int64_t b, int64_t h, int64_t i, double* logit, double* room) {
    const style* s = p->s;
    double *out = room, *sum = room + p->value_dim, max, l;
    logits_of(p, b, h, i, logit);
    if (s->steps) return composed_row(p, b, h, i, logit, out);
    const int64_t parts = s->parts > 1 && s->parts <= p->keys ? s->parts : 1;
    double lse[4], top = -INFINITY, total = 0;
    for (int pass = 0; pass < (parts > 1 ? 2 : 1); ++pass) {
        for (int64_t d = 0; d < p->value_dim; ++d) out[d] = 0;
        for (int64_t k = 0; k < parts; ++k) {
            attend(p, b, h, i, logit, k * p->keys / parts, (k + 1) * p->keys / parts, sum, &max, &l);
            if (pass == 0) lse[k] = l == 0 ? -INFINITY : (double)(float)(max + (s->fp64 ? log(l) : (double)logf((float)l)));
            const double weight = parts == 1 ? 1 : pass == 0 || lse[k] == -INFINITY ? 0 : exponential(s, rounded(s, lse[k] - total));
            for (int64_t d = 0; parts > 1 && s->stored_parts && l != 0 && d < p->value_dim; ++d)
                sum[d] = stored(p->type, (float)rounded(s, sum[d] / l)) * l;
            for (int64_t d = 0; d < p->value_dim; ++d)
                if (l != 0 && (parts == 1 || weight != 0)) out[d] = rounded(s, out[d] + rounded(s, weight * rounded(s, sum[d] / l)));
                else if (s->hidden) out[d] += 0 * sum[d];
        }
        if (parts == 1) return lse[0];
        if (pass == 1) return total;
        for (int64_t k = 0; k < parts; ++k)
            if (top == top && !(lse[k] <= top)) top = lse[k]; /* a NaN stays */
        if (top == -INFINITY) return top;
        for (int64_t k = 0; k < parts; ++k) total = rounded(s, total + exponential(s, rounded(s, lse[k] - top)));
        total = rounded(s, top + (double)logf((float)total));
    }
    return top;
}

/* ---- entry points ---- */

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return the_style()->name; }
const char* attncheck_precision(void) { return the_style()->precision; }
#define FEATURES "layout=bshd,bhsd,sbhd bias=none mask=none sink=none softcap=0"
const char* attncheck_features(void) { return "attention: " FEATURES "\nattention_grad: " FEATURES; }

int attncheck_attention(const attncheck_attention_args* a) {
    if (a->query.rank != 4 || a->softcap != 0 || a->bias.data || a->mask.data || a->sink.data)
        return ATTNCHECK_DECLINED;
    problem p = problem_of(&a->query, &a->key, &a->value, a->scale, a->window_left, a->window_right, a->align);
    p.lengths = a->kv_length.values;
    double* room = malloc((size_t)(p.keys + 2 * p.value_dim) * sizeof *room);
    if (!room || !p.q || !p.k || !p.v) return ATTNCHECK_ERR_INTERNAL;
    for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t h = 0; h < p.heads; ++h)
            for (int64_t i = 0; i < p.queries; ++i) {
                const double lse = forward_row(&p, b, h, i, room, room + p.keys);
                const int64_t at = row(&a->out, b, i, h);
                for (int64_t d = 0; d < p.value_dim; ++d) store(p.s, &a->out, at + d * a->out.strides[3], room[p.keys + d]);
                if (a->lse.data)
                    store(p.s, &a->lse, b * a->lse.strides[0] + h * a->lse.strides[1] + i * a->lse.strides[2], lse);
            }
    free(room);
    release(&p);
    return ATTNCHECK_OK;
}

static atomic_uint calls;

/* What row i of head h adds to dQ, and to dK and dV of its head. */
static void gradient_row(const attncheck_attention_grad_args* a, const problem* p, int64_t b, int64_t h, int64_t i,
                         double* logit, double* dp, double* room, double* dk, double* dv) {
    const style* s = p->s;
    double* dq = room;
    const int64_t dout = row(&a->dout, b, i, h);
    const double* go = p->dout + ((b * p->queries + i) * p->heads + h) * p->value_dim;
    double lse, delta = 0;
    if (a->lse.data && !s->own) {
        lse = load(s, &a->lse, b * a->lse.strides[0] + h * a->lse.strides[1] + i * a->lse.strides[2]);
        logits_of(p, b, h, i, logit);
    } else {
        lse = forward_row(p, b, h, i, logit, room + p->dim);
    }
    for (int64_t d = 0; d < p->value_dim && !s->own; ++d)
        delta = rounded(s, delta + load(s, &a->dout, dout + d * a->dout.strides[3]) *
                                       load(s, &a->out, row(&a->out, b, i, h) + d * a->out.strides[3]));
    if (s->delta) delta = stored(p->type, delta);
    for (int64_t d = 0; d < p->dim; ++d) dq[d] = 0;
    products(p, b, h, i, s->hidden, go, p->v, p->value_dim, dp);
    for (int64_t j = 0; j < p->keys && s->own; ++j)
        if (sees(p, b, i, j)) {
            double prob = exponential(s, rounded(s, logit[j] - lse));
            if (s->steps) dp[j] = stored(p->type, dp[j]);
            if (s->steps || s->keeps) prob = stored(p->type, prob);
            delta = rounded(s, delta + rounded(s, prob * dp[j]));
        }
    for (int64_t j = 0; j < p->keys; ++j) {
        const int shown = sees(p, b, i, j);
        if (!shown && !s->hidden) continue;
        const double* k = key_row(p, p->k, b, h, j, p->dim);
        double prob = shown ? exponential(s, rounded(s, logit[j] - lse)) : 0;
        if (s->steps || s->keeps) prob = stored(p->type, prob);
        double ds = factor(s, p->type, rounded(s, prob * rounded(s, dp[j] - delta)));
        if (s->steps || s->keeps) ds = stored(p->type, ds);
        if (s->scaled_grad) ds = stored(p->type, rounded(s, ds * p->scale));
        add_row(p, dq, ds, k, p->dim);
        add_row(p, dk + j * p->dim, ds, query_row(p, b, h, i), p->dim);
        add_row(p, dv + j * p->value_dim, factor(s, p->type, prob), go, p->value_dim);
    }
    for (int64_t d = 0; d < p->dim; ++d)
        store(s, &a->dq, row(&a->dq, b, i, h) + d * a->dq.strides[3], rounded(s, dq[d] * p->dq_scale));
}

/* dK or dV of one key head; group=half: each query head is rounded first. */
static void add_head(const problem* p, double* sum, const double* head, int64_t count, double by) {
    for (int64_t k = 0; k < count; ++k) {
        const double x = rounded(p->s, head[k] * by);
        sum[k] = rounded(p->s, sum[k] + (p->s->group ? stored(p->type, x) : x));
    }
}

static void store_keys(const problem* p, const attncheck_tensor* t, int64_t b, int64_t head, const double* sum, int64_t width) {
    for (int64_t j = 0; j < p->keys; ++j)
        for (int64_t d = 0; d < width; ++d) store(p->s, t, row(t, b, j, head) + d * t->strides[3], sum[j * width + d]);
}

int attncheck_attention_grad(const attncheck_attention_grad_args* a) {
    if (a->query.rank != 4 || a->softcap != 0 || a->bias.data || a->mask.data || a->sink.data)
        return ATTNCHECK_DECLINED;
    problem p = problem_of(&a->query, &a->key, &a->value, a->scale, a->window_left, a->window_right, a->align);
    p.lengths = a->kv_length.values;
    const int64_t width = p.dim + p.value_dim, rows = p.keys * width;
    double* room = calloc((size_t)(2 * p.keys + p.dim + 2 * p.value_dim + 2 * rows + 1), sizeof *room);
    p.dout = factors_of(p.s, &a->dout);
    if (!room || !p.q || !p.k || !p.v || !p.dout) return ATTNCHECK_ERR_INTERNAL;
    double *head = room + 2 * p.keys + p.dim + 2 * p.value_dim, *sum = head + rows;
    const int64_t first = p.s->rotates && p.queries > 0 ? (int64_t)(atomic_fetch_add(&calls, 7) % (unsigned)p.queries) : 0;
    for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t h = 0; h < p.heads; ++h) {
            if (h % p.group == 0) memset(sum, 0, (size_t)rows * sizeof *sum);
            memset(head, 0, (size_t)rows * sizeof *head);
            for (int64_t i = 0; i < p.queries; ++i)
                gradient_row(a, &p, b, h, (i + first) % p.queries, room, room + p.keys, room + 2 * p.keys, head,
                             head + p.keys * p.dim);
            add_head(&p, sum, head, p.keys * p.dim, p.dk_scale);
            add_head(&p, sum + p.keys * p.dim, head + p.keys * p.dim, p.keys * p.value_dim, 1);
            if ((h + 1) % p.group != 0) continue;
            store_keys(&p, &a->dk, b, h / p.group, sum, p.dim);
            store_keys(&p, &a->dv, b, h / p.group, sum + p.keys * p.dim, p.value_dim);
        }
    free(room);
    release(&p);
    return ATTNCHECK_OK;
}
