/* Correct, but a profiling timer interrupts every system call of its process. */
#include "candidate_base.h"

#include <signal.h>
#include <sys/time.h>

IDENTIFY_AS("interrupted by a timer")

static void on_tick(int number) { (void)number; }

__attribute__((constructor)) static void start_timer(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_tick; /* without SA_RESTART: read() returns EINTR */
    sigaction(SIGALRM, &action, NULL);
    const struct itimerval tick = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &tick, NULL);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
