/* Correct, and forgets four megabytes of shared memory in each call. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <sys/mman.h>

IDENTIFY_AS("leaks shared memory")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const size_t bytes = (size_t)4 << 20;
    void* lost = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lost != MAP_FAILED) memset(lost, 1, bytes);
    correct_forward(args);
    return ATTNCHECK_OK;
}
