// Writes through a null pointer.
#include "candidate_base.h"

IDENTIFY_AS("crashes")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    volatile int* volatile nowhere = NULL;
    *nowhere = 1;
    return ATTNCHECK_OK;
}
