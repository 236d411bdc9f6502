/* The gradient of examples/attention.c, for fp32 tensors [B,S,H,D]: causal, equal head counts or groups, the LSE of the
 * forward given.
 *
 *   cc -std=c11 -O2 -shared -fPIC -Iinclude examples/attention_grad.c -lm -o libattention_grad.so
 *   ./attncheck verify --candidate ./libattention_grad.so --no-validation --time 30
 *   ./attncheck reproduce 'the line of a counterexample' --candidate ./libattention_grad.so
 */
#include <attncheck/candidate.h>
#include <math.h>
#include <stdint.h>

/* ---- the kernel: one pair of query and key at a time ---- */

static float* row_of(const attncheck_tensor* t, int64_t b, int64_t position, int64_t head) {
    return (float*)t->data + b * t->strides[0] + position * t->strides[1] + head * t->strides[2];
}

static void clear(const attncheck_tensor* t) {
    for (int64_t b = 0; b < t->shape[0]; ++b)
        for (int64_t row = 0; row < t->shape[1]; ++row)
            for (int64_t head = 0; head < t->shape[2]; ++head)
                for (int64_t d = 0; d < t->shape[3]; ++d) row_of(t, b, row, head)[d * t->strides[3]] = 0;
}

static float dot(const float* x, int64_t x_step, const float* y, int64_t y_step, int64_t count) {
    float sum = 0;
    for (int64_t d = 0; d < count; ++d) sum += x[d * x_step] * y[d * y_step];
    return sum;
}

static void add(float* to, int64_t to_step, float factor, const float* x, int64_t x_step, int64_t count) {
    for (int64_t d = 0; d < count; ++d) to[d * to_step] += factor * x[d * x_step];
}

static void differentiate_row(const attncheck_attention_grad_args* a, int64_t b, int64_t head, int64_t i) {
    const int64_t dim = a->query.shape[3], value_dim = a->value.shape[3], keys = a->key.shape[1];
    const int64_t kv_head = head / (a->query.shape[2] / a->key.shape[2]);
    const int64_t corner = a->align == 1 ? keys - a->query.shape[1] : 0; /* bottom right or top left */
    const int64_t qs = a->query.strides[3], ks = a->key.strides[3], vs = a->value.strides[3], gs = a->dout.strides[3];
    const float *q = row_of(&a->query, b, i, head), *grad = row_of(&a->dout, b, i, head);
    const float lse = *((const float*)a->lse.data + b * a->lse.strides[0] + head * a->lse.strides[1] +
                        i * a->lse.strides[2]);
    const float delta = dot(grad, gs, row_of(&a->out, b, i, head), a->out.strides[3], value_dim);
    const float scale = (float)a->scale;
    for (int64_t j = 0; j < keys && j <= i + corner; ++j) {
        const float *k = row_of(&a->key, b, j, kv_head), *v = row_of(&a->value, b, j, kv_head);
        const float prob = expf(scale * dot(q, qs, k, ks, dim) - lse);
        const float ds = scale * prob * (dot(grad, gs, v, vs, value_dim) - delta);
        add(row_of(&a->dq, b, i, head), a->dq.strides[3], ds, k, ks, dim);
        add(row_of(&a->dk, b, j, kv_head), a->dk.strides[3], ds, q, qs, dim);
        add(row_of(&a->dv, b, j, kv_head), a->dv.strides[3], prob, grad, gs, value_dim);
    }
}

/* ---- the candidate ---- */

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return "naive causal attention gradient"; }
const char* attncheck_features(void) {
    return "attention_grad: dtype=fp32 layout=bshd window_left=-1 window_right=0 bias=none mask=none kv_length=none "
           "sink=none softcap=0 lse=given";
}

int attncheck_attention_grad(const attncheck_attention_grad_args* a) {
    if (a->query.dtype != ATTNCHECK_FLOAT32 || a->query.rank != 4 || a->window_left != -1 || a->window_right != 0 ||
        a->softcap != 0 || a->bias.data || a->mask.data || a->sink.data || !a->lse.data || a->kv_length.values)
        return ATTNCHECK_DECLINED;
    clear(&a->dq), clear(&a->dk), clear(&a->dv);
    for (int64_t b = 0; b < a->query.shape[0]; ++b)
        for (int64_t head = 0; head < a->query.shape[2]; ++head)
            for (int64_t i = 0; i < a->query.shape[1]; ++i) differentiate_row(a, b, head, i);
    return ATTNCHECK_OK;
}
