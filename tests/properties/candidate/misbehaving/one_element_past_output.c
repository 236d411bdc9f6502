// Correct, but writes one element behind the output.
#include "candidate_base.h"

IDENTIFY_AS("one element past the output")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    *end_of(&args->output) = 0;
    return ATTNCHECK_OK;
}
