/* A causal attention forward for bf16 tensors [B,S,H,D] that gives the output alone, as a candidate: the kernel, what it
 * takes, and how it declines the rest.
 *
 *   cc -std=c11 -O2 -shared -fPIC -Iinclude examples/attention.c -lm -o libattention.so
 *   ./attncheck verify --candidate ./libattention.so --no-validation --time 30
 *   ./attncheck reproduce 'the line of a counterexample' --candidate ./libattention.so
 */
#include <attncheck/candidate.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kernel: one query row at a time ---- */

static float load(const attncheck_tensor* t, int64_t at) {
    uint32_t bits = (uint32_t)((const uint16_t*)t->data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(const attncheck_tensor* t, int64_t at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) bits = 0x7fc00000;
    else bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
    ((uint16_t*)t->data)[at] = (uint16_t)(bits >> 16);
}

static int64_t row_of(const attncheck_tensor* t, int64_t b, int64_t position, int64_t head) {
    return b * t->strides[0] + position * t->strides[1] + head * t->strides[2];
}

static void attend_row(const attncheck_attention_args* a, int64_t b, int64_t head, int64_t i, float* prob, float* sum) {
    const int64_t dim = a->query.shape[3], value_dim = a->value.shape[3], keys = a->key.shape[1];
    const int64_t group = a->query.shape[2] / a->key.shape[2];
    const int64_t corner = a->align == 1 ? keys - a->query.shape[1] : 0; /* bottom right or top left */
    const int64_t q = row_of(&a->query, b, i, head), o = row_of(&a->out, b, i, head);
    int64_t end = i + corner + 1; /* causal */
    if (end < 0) end = 0;
    if (end > keys) end = keys;
    float largest = -INFINITY, total = 0;
    for (int64_t j = 0; j < end; ++j) {
        const int64_t k = row_of(&a->key, b, j, head / group);
        float dot = 0;
        for (int64_t d = 0; d < dim; ++d)
            dot += load(&a->query, q + d * a->query.strides[3]) * load(&a->key, k + d * a->key.strides[3]);
        prob[j] = dot * (float)a->scale;
        if (!(prob[j] <= largest)) largest = prob[j]; /* a NaN stays */
    }
    memset(sum, 0, (size_t)value_dim * sizeof *sum);
    for (int64_t j = 0; j < end; ++j) {
        const int64_t v = row_of(&a->value, b, j, head / group);
        prob[j] = expf(prob[j] - largest);
        total += prob[j];
        for (int64_t d = 0; d < value_dim; ++d) sum[d] += prob[j] * load(&a->value, v + d * a->value.strides[3]);
    }
    for (int64_t d = 0; d < value_dim; ++d)
        store(&a->out, o + d * a->out.strides[3], end > 0 ? sum[d] / total : 0); /* a row without keys is 0 */
}

/* ---- the candidate ---- */

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return "naive causal attention"; }
const char* attncheck_features(void) {
    return "attention: dtype=bf16 layout=bshd window_left=-1 window_right=0 bias=none mask=none kv_length=none sink=none "
           "softcap=0 outputs=out";
}

int attncheck_attention(const attncheck_attention_args* a) {
    if (a->query.dtype != ATTNCHECK_BFLOAT16 || a->query.rank != 4 || a->window_left != -1 || a->window_right != 0 ||
        a->softcap != 0 || a->bias.data || a->mask.data || a->sink.data || a->lse.data || a->kv_length.values)
        return ATTNCHECK_DECLINED;
    float* scratch = malloc((size_t)(a->key.shape[1] + a->value.shape[3] + 1) * sizeof *scratch);
    if (!scratch) return ATTNCHECK_ERR_INTERNAL;
    for (int64_t b = 0; b < a->query.shape[0]; ++b)
        for (int64_t head = 0; head < a->query.shape[2]; ++head)
            for (int64_t i = 0; i < a->query.shape[1]; ++i)
                attend_row(a, b, head, i, scratch, scratch + a->key.shape[1]);
    free(scratch);
    return ATTNCHECK_OK;
}
