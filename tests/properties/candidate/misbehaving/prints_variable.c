// Prints a variable of its environment, and writes one element behind the output where that is set.
#include "candidate_base.h"

#include <stdio.h>
#include <stdlib.h>

IDENTIFY_AS("prints a variable")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const char* variable = getenv("DEFECT_TO_SHOW");
    correct_forward(args);
    if (!variable) return ATTNCHECK_OK;
    printf("DEFECT_TO_SHOW is %s\n", variable);  // no flush: lines come at once
    *end_of(&args->output) = 0;
    return ATTNCHECK_OK;
}
