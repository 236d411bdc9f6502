/* Forks a process that waits for ever, and returns its number as the status of the call. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <unistd.h>

IDENTIFY_AS("forks")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    const pid_t child = fork();
    while (child == 0) pause();
    return (int)child;
}
