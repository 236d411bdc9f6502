/* Correct, with a name of 200 MB. */
#include "candidate_base.h"

#include <stdlib.h>

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) {
    const size_t bytes = (size_t)200 << 20;
    char* name = malloc(bytes + 1);
    if (!name) return "no memory";
    memset(name, 'x', bytes);
    name[bytes] = 0;
    return name;
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
