// Takes memory and touches it until something stops it.
#include "candidate_base.h"

#include <stdlib.h>

IDENTIFY_AS("allocates without end")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    enum { chunk = 1 << 20 };
    for (;;) {
        volatile char* memory = malloc(chunk);
        if (!memory) continue;
        for (size_t i = 0; i < chunk; i += 4096) memory[i] = 1;
    }
}
