/* Takes processes, memory or descriptors where a look at /proc does not find them. The answers are right: it is the trick
   itself that must be seen. */
#define _GNU_SOURCE
#include "hostile.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

IDENTIFY_AS("hides")

typedef attncheck_nsa_compress_args args_t;
static int calls;

enum { kPage = 4096, kMib = 1 << 20 };

static void* wait_on(void* unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}
static void* take_memory(void* unused) {
    const size_t bytes = (size_t)150 * kMib;
    char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t k = 0; memory != MAP_FAILED && k < bytes; k += kPage) memory[k] = 1;
    return wait_on(unused);
}
/* The first thread of a process ends: the process looks as if it had ended, and goes on. */
static void go_on_without_a_first_thread(void* (*work)(void*)) {
    pthread_t other;
    if (fork() != 0) return;
    setsid();
    pthread_create(&other, NULL, work, NULL);
    syscall(SYS_exit, 0);
}
static void hides_a_process(const args_t* a) {
    correct_forward(a);
    if (calls == 1) go_on_without_a_first_thread(wait_on);
    if (calls == 1) usleep(20000);
}
static void hides_memory(const args_t* a) {
    correct_forward(a);
    if (calls == 1) go_on_without_a_first_thread(take_memory);
    if (calls == 1) usleep(500000);
}
static void fills_page_tables(const args_t* a) { /* a table for every 2 MiB that are read, and no page of its own */
    const size_t bytes = (size_t)64 << 30, step = (size_t)2 * kMib;
    correct_forward(a);
    if (calls != 1) return;
    volatile char* memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    madvise((void*)(uintptr_t)memory, bytes, MADV_NOHUGEPAGE);
    for (size_t k = 0; k < bytes; k += step) (void)memory[k];
    usleep(400000);
}
static void fills_sockets(const args_t* a) {
    correct_forward(a);
    if (calls != 1) return;
    for (int k = 0, ends[2]; k < 400; ++k)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) break;
    usleep(400000);
}
static void leaves_ended_children(const args_t* a) { /* each has a number that no other process gets */
    correct_forward(a);
    for (int k = 0; k < 100; ++k)
        if (fork() == 0) _exit(0);
    usleep(20000);
}

static const trick_t kTricks[] = {
    TRICK(hides_a_process), TRICK(hides_memory), TRICK(fills_page_tables), TRICK(fills_sockets),
    TRICK(leaves_ended_children)};

RUN_TRICK(kTricks)
