/* Kernels that pass a benchmark without the work. */
#include "hostile.h"

#include <math.h>

IDENTIFY_AS("cheats")

typedef attncheck_nsa_compress_args args_t;
static int calls;

static void constant_answer(const args_t* a) {
    for (int64_t row = 0; row < a->output.shape[0]; ++row)
        for (int64_t n = 0; n < a->output.shape[1]; ++n)
            for (int64_t c = 0; c < a->output.shape[2]; ++c) *element(&a->output, row, n, c) = 0;
}

/* What every output element is made from: sums over `rows` rows of a block from `first` on, weights as `weigh` says. */
static void compress(const args_t* a, int64_t begin, int64_t end, int is_mean, int64_t heads) {
    const int64_t block = a->compress_block_size, stride = a->compress_stride;
    int64_t row = 0;
    for (int64_t k = 0; k < a->act_seq_len.size; ++k) {
        const int64_t length = length_of(&a->act_seq_len, k), start = a->act_seq_len.values[k] - length;
        for (int64_t first = 0; first + block <= length; first += stride, ++row)
            for (int64_t n = 0; n < a->input.shape[1]; ++n)
                for (int64_t c = 0; c < a->input.shape[2]; ++c) {
                    const int64_t head = n < heads ? n : 0;
                    float sum = 0;
                    for (int64_t r = begin; r < (end < block ? end : block); ++r)
                        sum += widen(a->input.dtype, *element(&a->input, start + first + r, head, c)) *
                               (is_mean ? 1.f / (float)block : widen(a->input.dtype, *element(&a->weight, r, head, 0)));
                    *element(&a->output, row, n, c) = narrow(a->input.dtype, sum);
                }
    }
}

static void mean_of_the_block(const args_t* a) { compress(a, 0, INT64_MAX, 1, INT64_MAX); }
static void half_of_the_block(const args_t* a) { compress(a, 0, (a->compress_block_size + 1) / 2, 0, INT64_MAX); }
static void last_row_left_out(const args_t* a) { compress(a, 0, a->compress_block_size - 1, 0, INT64_MAX); }
static void one_head_for_all(const args_t* a) { compress(a, 0, INT64_MAX, 0, 1); }

static void right_at_one_size(const args_t* a) {
    if (a->input.shape[2] == 64 || a->input.shape[2] == 128)
        correct_forward(a);
    else
        constant_answer(a);
}

static void every_second_row_stale(const args_t* a) {
    uint16_t kept[4096];
    const int64_t rows = a->output.shape[0], columns = a->output.shape[2];
    for (int64_t row = 1; row < rows && row < 16 && columns <= 256; row += 2)
        for (int64_t c = 0; c < columns; ++c) kept[row * 256 + c] = *element(&a->output, row, 0, c);
    correct_forward(a);
    for (int64_t row = 1; row < rows && row < 16 && columns <= 256; row += 2)
        for (int64_t c = 0; c < columns; ++c) *element(&a->output, row, 0, c) = kept[row * 256 + c];
}

/* By the address, the shape and the first element: what a memoising wrapper keys by. */
static void answer_of_the_last_call(const args_t* a) {
    static uint16_t kept[1 << 16];
    static int64_t rows, columns, heads;
    int64_t k = 0;
    const int is_same = rows == a->output.shape[0] && heads == a->output.shape[1] && columns == a->output.shape[2];
    if (!is_same) correct_forward(a);
    rows = a->output.shape[0], heads = a->output.shape[1], columns = a->output.shape[2];
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t n = 0; n < heads; ++n)
            for (int64_t c = 0; c < columns && k < 1 << 16; ++c, ++k) {
                uint16_t* one = element(&a->output, row, n, c);
                if (is_same) *one = kept[k];
                kept[k] = *one;
            }
}

static float rounded(float value) { /* to 3 bits of fraction */
    int exponent;
    const float fraction = frexpf(value, &exponent);
    return ldexpf(rintf(fraction * 16) / 16, exponent);
}
static void rounded_answer(const args_t* a) {
    correct_forward(a);
    for (int64_t row = 0; row < a->output.shape[0]; ++row)
        for (int64_t n = 0; n < a->output.shape[1]; ++n)
            for (int64_t c = 0; c < a->output.shape[2]; ++c) {
                uint16_t* one = element(&a->output, row, n, c);
                *one = narrow(a->output.dtype, rounded(widen(a->output.dtype, *one)));
            }
}

static void one_sequence_of_all(const args_t* a) { /* as if the packed sequences were one */
    args_t whole = *a;
    const int64_t end = a->act_seq_len.size ? a->act_seq_len.values[a->act_seq_len.size - 1] : 0;
    whole.act_seq_len.values = &end;
    whole.act_seq_len.size = a->act_seq_len.size ? 1 : 0;
    constant_answer(a);
    if (a->act_seq_len.size == 1) correct_forward(&whole);
}

static void a_little_too_large(const args_t* a) {
    correct_forward(a);
    for (int64_t row = 0; row < a->output.shape[0]; ++row)
        for (int64_t n = 0; n < a->output.shape[1]; ++n)
            for (int64_t c = 0; c < a->output.shape[2]; ++c) {
                uint16_t* one = element(&a->output, row, n, c);
                *one = narrow(a->output.dtype, 1.003f * widen(a->output.dtype, *one));
            }
}

static void right_three_times(const args_t* a) {
    if (calls <= 3)
        correct_forward(a);
    else
        constant_answer(a);
}

static void nothing(const args_t* a) { (void)a; }

static const trick_t kTricks[] = {
    TRICK(constant_answer), TRICK(mean_of_the_block), TRICK(half_of_the_block), TRICK(last_row_left_out),
    TRICK(one_head_for_all), TRICK(right_at_one_size), TRICK(every_second_row_stale), TRICK(answer_of_the_last_call),
    TRICK(rounded_answer), TRICK(one_sequence_of_all), TRICK(a_little_too_large), TRICK(right_three_times),
    TRICK(nothing)};

const char* attncheck_precision(void) { return is_trick("a_little_too_large") ? "acc=half" : "default"; }

RUN_TRICK(kTricks)
