/* Correct, and forgets four megabytes in each call. */
#include "candidate_base.h"

#include <stdlib.h>

IDENTIFY_AS("leaks")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const size_t bytes = (size_t)4 << 20;
    volatile char* lost = malloc(bytes);
    for (size_t k = 0; lost && k < bytes; k += 4096) lost[k] = 1;
    correct_forward(args);
    return ATTNCHECK_OK;
}
