// Correct where the input lies at a multiple of 16 bytes: it loads from the one before otherwise. ROUNDS_ADDRESSES=declines:
// declines other addresses.
#include <stdlib.h>

#include "candidate_base.h"

IDENTIFY_AS("rounds addresses")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    attncheck_nsa_compress_args copy = *args;
    const uintptr_t address = (uintptr_t)args->input.data, rest = address % 16;
    const char* way = getenv("ROUNDS_ADDRESSES");
    if (rest != 0 && way && strcmp(way, "declines") == 0) return ATTNCHECK_DECLINED;
    copy.input.data = (void*)(address - rest);
    correct_forward(&copy);
    return ATTNCHECK_OK;
}
