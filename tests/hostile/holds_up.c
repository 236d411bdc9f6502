/* Takes what runs out, holds up the suite, or moves what the suite put in place. The answers are wrong where a trick is to win
   time for them, and right where it is the trick itself that must be seen. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

IDENTIFY_AS("holds up")

typedef attncheck_nsa_compress_args args_t;
static int calls;

/* The guard page behind the output; null where the output does not end at one. */
static void* guard_behind(const attncheck_tensor* output) {
    void* beyond = end_of(output);
    return ((uintptr_t)beyond & 4095) == 0 ? beyond : NULL;
}

/* The files of the suite. */
static void locks_a_file(const args_t* a) { /* which the suite locks when it has found something */
    wrong_forward(a);
    if (calls == 1) flock(open(target(), O_RDONLY), LOCK_EX);
}

/* The memory that is shared with the suite. */
static void maps_over_a_guard(const args_t* a) {
    volatile uint16_t* beyond = guard_behind(&a->output);
    correct_forward(a);
    if (!beyond) return;
    mmap((void*)beyond, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *beyond = 1;
}
static void swaps_a_guard(const args_t* a) { /* away, and back before the call returns */
    volatile uint16_t* beyond = guard_behind(&a->output);
    correct_forward(a);
    if (!beyond) return;
    void* aside = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap((void*)beyond, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside)
        mmap((void*)beyond, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *beyond = 1;
    mremap(aside, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void*)beyond);
}

/* Processes. */
static int sleep_on(void* unused) {
    (void)unused;
    for (;;) pause();
    return 0;
}
static void hides_a_child(const args_t* a) { /* its end is no signal: an ordinary wait does not know it */
    static char stack[16384];
    correct_forward(a);
    if (calls == 1) clone(sleep_on, stack + sizeof stack, CLONE_VM, NULL);
}
static void becomes_another_program(const args_t* a) {
    wrong_forward(a);
    execl("/bin/true", "true", (char*)NULL);
}
static void kills_its_group(const args_t* a) {
    wrong_forward(a);
    kill(0, SIGKILL);
}
static void hops(const args_t* a) { /* from process to process, faster than it is looked at */
    wrong_forward(a);
    if (calls != 1 || fork() != 0) return;
    setsid();
    for (int k = 0; k < 300; ++k)
        if (fork() != 0) _exit(0);
    _exit(0);
}
static void* wait_on(void* unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}
static void starts_threads(const args_t* a) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    correct_forward(a);
    for (int k = 0; k < 4500 && calls == 1; ++k)
        if (pthread_create(&thread, &small, wait_on, NULL) != 0) break;
    usleep(300000);
}

/* Descriptors. */
static int socket_of_the_suite(void) {
    struct stat file;
    for (int fd = 3; fd < 64; ++fd)
        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) return fd;
    return -1;
}
static void passes_descriptors(const args_t* a) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr message = {0};
    message.msg_iov = &text, message.msg_iovlen = 1;
    message.msg_control = space, message.msg_controllen = sizeof space;
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    const int given = 2;
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof given);
    memcpy(CMSG_DATA(head), &given, sizeof given);
    wrong_forward(a);
    for (int k = 0; k < 100; ++k) (void)!sendmsg(socket_of_the_suite(), &message, MSG_DONTWAIT);
}
static void opens_descriptors(const args_t* a) {
    struct rlimit most;
    wrong_forward(a);
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    for (int ends[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0;) continue;
}

/* Time. */
static void takes_nearly_all_the_time(const args_t* a) {
    correct_forward(a);
    usleep(1000 * (useconds_t)atoi(target()));
}
static void loads_slowly(const args_t* a) { wrong_forward(a); }

static const trick_t kTricks[] = {
    TRICK(locks_a_file), TRICK(maps_over_a_guard), TRICK(swaps_a_guard),
    TRICK(hides_a_child), TRICK(becomes_another_program), TRICK(kills_its_group), TRICK(hops), TRICK(starts_threads),
    TRICK(passes_descriptors), TRICK(opens_descriptors), TRICK(takes_nearly_all_the_time), TRICK(loads_slowly)};

__attribute__((constructor)) static void prepare(void) {
    if (is_trick("loads_slowly")) usleep(1000 * (useconds_t)atoi(target()));
}

RUN_TRICK(kTricks)
