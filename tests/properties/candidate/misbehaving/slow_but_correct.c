// Correct after a fifth of a second of rest, and declares its rounding class.
#include "candidate_base.h"

#include <time.h>

IDENTIFY_AS("slow but correct")

const char* attncheck_precision(void) { return "acc=fp32"; }

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const struct timespec rest = {0, 200000000};
    nanosleep(&rest, NULL);
    correct_forward(args);
    return ATTNCHECK_OK;
}
