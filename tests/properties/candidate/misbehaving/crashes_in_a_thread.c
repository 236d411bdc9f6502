// Correct, but leaves a thread that crashes when the call has returned.
#include "candidate_base.h"

#include <pthread.h>
#include <unistd.h>

IDENTIFY_AS("crashes in a thread")

static void* late(void* unused) {
    usleep(2000);
    int* volatile nowhere = (int*)8;
    *nowhere = 1;
    return unused;
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    pthread_t thread;
    correct_forward(args);
    if (pthread_create(&thread, 0, late, 0) == 0) pthread_detach(thread);
    return ATTNCHECK_OK;
}
