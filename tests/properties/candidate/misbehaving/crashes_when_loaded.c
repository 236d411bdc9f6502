// Writes through a null pointer in a constructor, before anybody has asked it anything.
#include "candidate_base.h"

IDENTIFY_AS("crashes when loaded")

__attribute__((constructor)) static void load(void) {
    volatile int* volatile nowhere = NULL;
    *nowhere = 1;
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
