/* Correct, and writes a megabyte to standard error in each call, that a terminal would obey. */
#include "candidate_base.h"

#include <stdio.h>

IDENTIFY_AS("talks without end")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    for (int k = 0; k < 40000; ++k) fputs("\x1b[2J\x1b[8m every property held\n", stderr);
    correct_forward(args);
    return ATTNCHECK_OK;
}
