/* Correct, but takes a second to load, as a kernel in Python does. */
#include "candidate_base.h"

#include <time.h>

IDENTIFY_AS("loads slowly")

__attribute__((constructor)) static void wait_a_second(void) {
    const struct timespec second = {1, 0};
    nanosleep(&second, NULL);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
