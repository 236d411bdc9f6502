// Correct and talkative: standard output of the suite must stay clean.
#include "candidate_base.h"

#include <stdio.h>

IDENTIFY_AS("prints")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    puts("NOISE of the candidate");
    fflush(stdout);
    correct_forward(args);
    return ATTNCHECK_OK;
}
