// Correct, but leaves a mark in its first weight.
#include "candidate_base.h"

IDENTIFY_AS("writes an input")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    *element(&args->weight, 0, 0, 0) ^= 1;
    return ATTNCHECK_OK;
}
