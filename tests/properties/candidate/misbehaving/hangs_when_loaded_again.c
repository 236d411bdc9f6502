/* Correct, but hangs when it is loaded while the file MARKER exists, which the first load makes. */
#include "candidate_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

IDENTIFY_AS("hangs when loaded again")

__attribute__((constructor)) static void hang(void) {
    const char* marker = getenv("MARKER");
    if (!marker) return;
    while (access(marker, F_OK) == 0) pause();
    FILE* file = fopen(marker, "w");
    if (file) fclose(file);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
