// Three defects, each on its own kind of case: a crash on an empty sequence, a hang with windows of
// 48, and one element too many with three heads.
#include "candidate_base.h"

IDENTIFY_AS("three defects")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    volatile intptr_t nowhere = 16;
    for (int64_t k = 0; k < args->act_seq_len.size; ++k)
        if (length_of(&args->act_seq_len, k) == 0) *(volatile int*)nowhere = 1;
    volatile int hangs = args->compress_block_size == 48;
    while (hangs) {
    }
    correct_forward(args);
    if (args->input.shape[1] == 3) *end_of(&args->output) = 0;
    return ATTNCHECK_OK;
}
