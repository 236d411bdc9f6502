/* Correct, but takes the address space away that further threads would need for their stacks, before any call. */
#include "candidate_base.h"

#include <sys/resource.h>

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) { /* what the worker asks for last */
    const struct rlimit none = {1, 1};
    setrlimit(RLIMIT_AS, &none);
    return "leaves no room for threads";
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
