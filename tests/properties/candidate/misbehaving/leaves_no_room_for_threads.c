/* Correct, but takes the address space away that further threads would need for their stacks. */
#include "candidate_base.h"

#include <sys/resource.h>

IDENTIFY_AS("leaves no room for threads")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const struct rlimit none = {1, 1};
    setrlimit(RLIMIT_AS, &none);
    correct_forward(args);
    return ATTNCHECK_OK;
}
