/* Correct, but forks in the way that the variable FORK names; with a '+' in front, while it is
   loaded: "children" that wait for ever, a "daemon" of a session of its own, a "helper" that ends
   with its parent, "many" children of a call that goes on, "holder": a daemon that keeps every descriptor while its parent exits, or "rests": a daemon, and a call that does not return. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

IDENTIFY_AS("leaves processes")

static void wait_for_ever(void) {
    for (;;) pause();
}

static void start_daemon(void) {
    const pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0) wait_for_ever();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void start_helper(void) {
    int ends[2];
    char byte;
    if (pipe(ends) != 0) return;
    if (fork() == 0) {
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0) {
        }
        _exit(0); /* the parent is gone */
    }
    close(ends[0]);
}

static void start(const char* how) {
    if (!how) return;
    for (int k = 0; k < 50 && strcmp(how, "children") == 0; ++k)
        if (fork() == 0) wait_for_ever();
    for (int k = 0; k < 400 && strcmp(how, "many") == 0; ++k)
        if (fork() == 0) wait_for_ever();
    if (strcmp(how, "many") == 0) wait_for_ever();
    if (strcmp(how, "daemon") == 0 || strcmp(how, "holder") == 0 || strcmp(how, "rests") == 0) start_daemon();
    if (strcmp(how, "rests") == 0) wait_for_ever();
    if (strcmp(how, "helper") == 0) start_helper();
    if (strcmp(how, "holder") == 0) _exit(5);
}

__attribute__((constructor)) static void load(void) {
    const char* how = getenv("FORK");
    if (how && how[0] == '+') start(how + 1);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    static int calls;
    if (calls++ == 0) start(getenv("FORK"));
    correct_forward(args);
    return ATTNCHECK_OK;
}
