/* Correct kernels of the documents' operators in manners that the suite accused once: FlashAttention in BSND without mask and
 * bias, its gradient, fp8 included, and selected attention. ATTNCHECK_STYLE names the manner, attncheck_precision() declares it;
 * `best` and `weights` need no word. All in binary64, with the roundings of the manner. Nothing of impl/ or ref/. */
#include <float.h>
#include <stdlib.h>

#include "correct_tensors.h"

typedef struct {
    const char *name, *precision;
    int lse;     /* the statistics are (LSE, 1) */
    int stale;   /* the maximum follows only when it is exceeded by so much; its sum belongs to it */
    int weights; /* P / keep_prob is cast to the storage type, as the documents have it */
    int fp8;     /* P and dS are cast to the coarser fp8 type in use */
} style;

static const style kStyles[] = {
    {.name = "best", .precision = "acc=fp32"},
    {.name = "lse_pair", .precision = "stats=lse", .lse = 1},
    {.name = "stale", .precision = "stats=lse", .stale = 6},
    {.name = "weights", .precision = "p=half ds=half", .weights = 1},
    {.name = "fp8", .precision = "p=half ds=half", .fp8 = 1},
};

static const style* the_style(void) {
    const char* name = getenv("ATTNCHECK_STYLE");
    for (size_t i = 0; name && i < sizeof kStyles / sizeof *kStyles; ++i)
        if (!strcmp(kStyles[i].name, name)) return &kStyles[i];
    return &kStyles[0];
}

/* ---- a row of the forward ---- */

typedef struct {
    int64_t keys, dim, value_dim;
    double *logit, *value, *sum; /* [keys], [keys, value_dim], [value_dim] */
    const unsigned char* kept;   /* [keys]; NULL: all */
    double keep, max, l;
    int32_t type;
} row;

/* Maximum, sum and sum of values; the weight of a key is e^(logit - maximum), over keep_prob where keys are dropped. */
static void attend(row* r, const style* s) {
    r->max = -INFINITY, r->l = 0;
    for (int64_t d = 0; d < r->value_dim; ++d) r->sum[d] = 0;
    for (int64_t j = 0; j < r->keys; ++j) { /* a NaN stays */
        const double top = r->max == -INFINITY ? r->max : r->max + s->stale;
        if (r->max == r->max && !(r->logit[j] <= top)) r->max = r->logit[j];
    }
    for (int64_t j = 0; j < r->keys; ++j) {
        double e = r->logit[j] == -INFINITY && r->max == -INFINITY ? (double)NAN : exp(r->logit[j] - r->max);
        r->l += e;
        if (r->kept && !r->kept[j]) continue;
        e /= r->keep;
        if (s->weights && r->type != ATTNCHECK_FLOAT32) e = stored(r->type, e);
        for (int64_t d = 0; d < r->value_dim; ++d) r->sum[d] += e * r->value[j * r->value_dim + d];
    }
    for (int64_t d = 0; d < r->value_dim; ++d) r->sum[d] = r->keys > 0 ? r->sum[d] / r->l : 0;
}

static void store_statistics(const row* r, const style* s, const attncheck_tensor* max, const attncheck_tensor* sum, int64_t max_at,
                             int64_t sum_at) {
    const int empty = r->keys == 0;
    store_statistic(max, max_at, empty ? (double)-FLT_MAX : s->lse ? r->max + log(r->l) : r->max);
    store_statistic(sum, sum_at, empty ? (double)FLT_MAX : s->lse ? 1 : r->l);
}

/* ---- FlashAttention, BSND ---- */

static int64_t at4(const attncheck_tensor* t, int64_t b, int64_t x, int64_t y) {
    return b * t->strides[0] + x * t->strides[1] + y * t->strides[2];
}

/* Dropout bits are numbered [B,N,Sq,Skv], the lowest bit of a byte first. */
static void load_kept(const attncheck_tensor* drop, int64_t first, int64_t keys, unsigned char* kept) {
    for (int64_t j = 0; j < keys; ++j) {
        const int64_t bit = first + j;
        kept[j] = ((const uint8_t*)drop->data)[bit / 8 * drop->strides[0]] >> bit % 8 & 1;
    }
}

typedef struct {
    const attncheck_tensor *query, *key, *value, *drop;
    int64_t queries, heads, group;
    double scale, keep;
} flash;

/* Logits, values and dropped keys of a row; the key rows stay in `keys`. */
static void load_flash_row(const flash* f, int64_t b, int64_t h, int64_t i, double* query, double* keys, unsigned char* kept, row* r) {
    load_row(f->query, at4(f->query, b, i, h), query);
    for (int64_t j = 0; j < r->keys; ++j) {
        load_row(f->key, at4(f->key, b, j, h / f->group), keys + j * r->dim);
        load_row(f->value, at4(f->value, b, j, h / f->group), r->value + j * r->value_dim);
        r->logit[j] = f->scale * dot(query, keys + j * r->dim, r->dim);
    }
    r->kept = f->drop->data ? kept : NULL;
    if (r->kept) load_kept(f->drop, ((b * f->heads + h) * f->queries + i) * r->keys, r->keys, kept);
}

#define FLASH "layout=BSND mask=absent pse=absent rope=0 start=absent"
uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return the_style()->name; }
const char* attncheck_precision(void) { return the_style()->precision; }
const char* attncheck_features(void) {
    return the_style()->fp8 ? "flash_attention_score_grad: dtype=fp8_e5m2,fp8_e4m3fn " FLASH
                            : "flash_attention_score: " FLASH "\nflash_attention_score_grad: dtype=fp16,bf16,fp32 " FLASH
                              "\nnsa_selected_attention: mask=absent";
}

int attncheck_flash_attention_score(const attncheck_flash_attention_score_args* a) {
    if (strcmp(a->input_layout, "BSND") || a->atten_mask.data || a->real_shift.data || a->query_rope.data) return ATTNCHECK_DECLINED;
    const flash f = {&a->query, &a->key, &a->value, &a->drop_mask, a->query.shape[1], a->query.shape[2],
                     a->query.shape[2] / a->key.shape[2], (double)(float)a->scale_value, (double)(float)a->keep_prob};
    row r = {.keys = a->key.shape[1], .dim = a->query.shape[3], .value_dim = a->value.shape[3], .keep = f.keep, .type = a->query.dtype};
    double* room = calloc((size_t)(r.keys * (1 + r.dim + r.value_dim) + r.dim + r.value_dim + 1), sizeof *room);
    unsigned char* kept = calloc((size_t)r.keys + 1, 1);
    if (!room || !kept) return ATTNCHECK_ERR_INTERNAL;
    r.logit = room, r.value = room + r.keys, r.sum = r.value + r.keys * r.value_dim;
    double *query = r.sum + r.value_dim, *keys = query + r.dim;
    for (int64_t b = 0; b < a->query.shape[0]; ++b)
        for (int64_t h = 0; h < f.heads; ++h)
            for (int64_t i = 0; i < f.queries; ++i) {
                load_flash_row(&f, b, h, i, query, keys, kept, &r);
                attend(&r, the_style());
                store_row(&a->attention_out, at4(&a->attention_out, b, i, h), r.sum);
                store_statistics(&r, the_style(), &a->softmax_max, &a->softmax_sum, at4(&a->softmax_max, b, h, i),
                                 at4(&a->softmax_sum, b, h, i));
            }
    free(kept);
    free(room);
    return ATTNCHECK_OK;
}

static double cast(const attncheck_flash_attention_score_grad_args* a, double x) {
    if (!the_style()->fp8 || !is_fp8(a->query.dtype)) return x;
    const int coarse = a->query.dtype == ATTNCHECK_FLOAT8_E5M2 || a->dy.dtype == ATTNCHECK_FLOAT8_E5M2;
    return to_fp8(coarse ? ATTNCHECK_FLOAT8_E5M2 : ATTNCHECK_FLOAT8_E4M3FN, x);
}

int attncheck_flash_attention_score_grad(const attncheck_flash_attention_score_grad_args* a) {
    if (strcmp(a->input_layout, "BSND") || a->atten_mask.data || a->pse_shift.data || a->query_rope.data) return ATTNCHECK_DECLINED;
    if (is_fp8(a->query.dtype) != the_style()->fp8) return ATTNCHECK_DECLINED;
    const flash f = {&a->query, &a->key, &a->value, &a->drop_mask, a->query.shape[1], a->query.shape[2],
                     a->query.shape[2] / a->key.shape[2], (double)(float)a->scale_value, (double)(float)a->keep_prob};
    row r = {.keys = a->key.shape[1], .dim = a->query.shape[3], .value_dim = a->value.shape[3], .keep = f.keep};
    const int64_t width = r.dim + r.value_dim;
    double* room = calloc((size_t)(r.keys * (1 + 2 * width) + 2 * width + r.value_dim + 1), sizeof *room);
    unsigned char* kept = calloc((size_t)r.keys + 1, 1);
    if (!room || !kept) return ATTNCHECK_ERR_INTERNAL;
    r.logit = room, r.value = room + r.keys;
    double *keys = r.value + r.keys * r.value_dim, *dk = keys + r.keys * r.dim, *dv = dk + r.keys * r.dim;
    double *query = dv + r.keys * r.value_dim, *dq = query + r.dim, *dy = dq + r.dim, *out = dy + r.value_dim;
    for (int64_t b = 0; b < a->query.shape[0]; ++b)
        for (int64_t h = 0; h < f.heads; ++h) {
            if (h % f.group == 0) memset(dk, 0, (size_t)(r.keys * width) * sizeof *dk);
            for (int64_t i = 0; i < f.queries; ++i) {
                load_flash_row(&f, b, h, i, query, keys, kept, &r);
                load_row(&a->dy, at4(&a->dy, b, i, h), dy);
                load_row(&a->attention_in, at4(&a->attention_in, b, i, h), out);
                const double delta = dot(dy, out, r.value_dim);
                const double max = load(&a->softmax_max, at4(&a->softmax_max, b, h, i));
                const double sum = load(&a->softmax_sum, at4(&a->softmax_sum, b, h, i));
                for (int64_t d = 0; d < r.dim; ++d) dq[d] = 0;
                for (int64_t j = 0; j < r.keys; ++j) {
                    const int is_kept = !r.kept || r.kept[j];
                    const double p = exp(r.logit[j] - max) / sum, dp = is_kept ? dot(dy, r.value + j * r.value_dim, r.value_dim) / f.keep : 0;
                    const double ds = cast(a, p * (dp - delta)), weight = cast(a, p / f.keep);
                    for (int64_t d = 0; d < r.dim; ++d) {
                        dq[d] += ds * keys[j * r.dim + d];
                        dk[j * r.dim + d] += ds * query[d];
                    }
                    for (int64_t d = 0; is_kept && d < r.value_dim; ++d) dv[j * r.value_dim + d] += weight * dy[d];
                }
                for (int64_t d = 0; d < r.dim; ++d) dq[d] *= f.scale;
                store_row(&a->dq, at4(&a->dq, b, i, h), dq);
            }
            if ((h + 1) % f.group != 0) continue;
            for (int64_t j = 0; j < r.keys; ++j) {
                for (int64_t d = 0; d < r.dim; ++d) dk[j * r.dim + d] *= f.scale;
                store_row(&a->dk, at4(&a->dk, b, j, h / f.group), dk + j * r.dim);
                store_row(&a->dv, at4(&a->dv, b, j, h / f.group), dv + j * r.value_dim);
            }
        }
    free(kept);
    free(room);
    return ATTNCHECK_OK;
}

/* ---- selected attention ---- */

static int64_t at3(const attncheck_tensor* t, int64_t x, int64_t y) { return x * t->strides[0] + y * t->strides[1]; }

int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* a) {
    if (a->atten_mask.data) return ATTNCHECK_DECLINED;
    const int64_t block = a->selected_block_size, count = a->selected_block_count, heads = a->query.shape[1], most = block * count;
    const int64_t group = heads / a->key.shape[1];
    const double scale = (double)(float)a->scale_value;
    row r = {.dim = a->query.shape[2], .value_dim = a->value.shape[2], .keep = 1, .type = a->query.dtype};
    double* room = calloc((size_t)(most * (1 + r.value_dim) + 2 * r.dim + r.value_dim), sizeof *room);
    if (!room) return ATTNCHECK_ERR_INTERNAL;
    r.logit = room, r.value = room + most, r.sum = r.value + most * r.value_dim;
    double *query = r.sum + r.value_dim, *key = query + r.dim;
    int64_t t = 0, first = 0;
    for (int64_t b = 0; b <= a->actual_seq_q_len.size; ++b) { /* the last round: rows behind the last sequence */
        const int rest = b == a->actual_seq_q_len.size;
        const int64_t end = rest ? a->query.shape[0] : a->actual_seq_q_len.values[b];
        const int64_t keys_end = rest ? first : a->actual_seq_kv_len.values[b];
        for (; t < end; ++t)
            for (int64_t h = 0; h < heads; ++h) {
                r.keys = keys_end > first ? most : 0;
                load_row(&a->query, at3(&a->query, t, h), query);
                for (int64_t k = 0; k < r.keys; ++k) {
                    const int32_t* list = (const int32_t*)a->topk_indices.data + at3(&a->topk_indices, t, h / group);
                    const int64_t j = first + list[k / block * a->topk_indices.strides[2]] * block + k % block;
                    load_row(&a->key, at3(&a->key, j, h / group), key);
                    load_row(&a->value, at3(&a->value, j, h / group), r.value + k * r.value_dim);
                    r.logit[k] = scale * dot(query, key, r.dim);
                }
                attend(&r, the_style());
                store_row(&a->attention_out, at3(&a->attention_out, t, h), r.sum);
                store_statistics(&r, the_style(), &a->softmax_max, &a->softmax_sum, at3(&a->softmax_max, t, h),
                                 at3(&a->softmax_sum, t, h));
                if (!rest) continue;
                store_statistic(&a->softmax_max, at3(&a->softmax_max, t, h), 0);
                store_statistic(&a->softmax_sum, at3(&a->softmax_sum, t, h), 0);
            }
        first = keys_end;
    }
    free(room);
    return ATTNCHECK_OK;
}
