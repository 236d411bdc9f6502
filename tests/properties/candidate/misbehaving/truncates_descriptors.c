/* Cuts off every file that its process has open, memory files included. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <unistd.h>

IDENTIFY_AS("truncates descriptors")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    for (int fd = 3; fd < 64; ++fd)
        if (ftruncate(fd, 0) != 0) continue;
    correct_forward(args);
    return ATTNCHECK_OK;
}
