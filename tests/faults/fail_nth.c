/* Preloaded into attncheck: lets the n-th call of one function of the system fail, counted over all
   processes of the run, or all calls from the n-th on. Processes of other programs are left alone.
     FAULT=read:3       the third read fails        FAULT=write:3+     so do all that follow
     FAULT_FIRED=FILE   has a byte once a call has failed. It is there already: a process that
                        outlives the run by a moment makes no file where one cleans up.
   What is called inside of the C library (stdio's own writing, say) is not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char function[32];
static long failing;   /* the number of the call; 0: none */
static int from_there; /* and all later ones */
static atomic_long* count;

__attribute__((constructor)) static void set_up(void) {
    const char* fault = getenv("FAULT");
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (!fault || length < 0) return;
    path[length] = 0;
    const char* name = strrchr(path, '/');
    if (!name || strcmp(name, "/attncheck") != 0) return;
    const char* colon = strchr(fault, ':');
    if (!colon || colon - fault >= (long)sizeof function) return;
    memcpy(function, fault, (size_t)(colon - fault));
    char* end = NULL;
    failing = strtol(colon + 1, &end, 10);
    from_there = *end == '+';
    void* shared = (void*)syscall(SYS_mmap, NULL, sizeof *count, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) _exit(99);
    count = shared;
}

/* Whether this call fails; errno is set then. */
static int fails(const char* name, int error) {
    if (!failing || strcmp(name, function) != 0) return 0;
    const long number = atomic_fetch_add(count, 1) + 1;
    if (number != failing && !(from_there && number > failing)) return 0;
    const char* mark = getenv("FAULT_FIRED");
    if (mark) {
        const long file = syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CLOEXEC, 0);
        if (file >= 0) {
            syscall(SYS_write, file, "1", 1);
            syscall(SYS_close, file);
        }
    }
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Both have a mode only when they make a file. */
static int mode_of(int flags, va_list more) {
    return (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, int) : 0;
}

int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const int mode = mode_of(flags, more);
    va_end(more);
    if (fails("open", EMFILE)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const int mode = mode_of(flags, more);
    va_end(more);
    if (fails("openat", EMFILE)) return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
    if (fails("fopen", EMFILE)) return NULL;
    return REAL(fopen)(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
    if (fails("fopen", EMFILE)) return NULL;
    return REAL(fopen64)(path, mode);
}

ssize_t read(int file, void* to, size_t bytes) {
    if (fails("read", EIO)) return -1;
    return syscall(SYS_read, file, to, bytes);
}

ssize_t write(int file, const void* from, size_t bytes) {
    if (fails("write", ENOSPC)) return -1;
    return syscall(SYS_write, file, from, bytes);
}

int rename(const char* from, const char* to) {
    if (fails("rename", EIO)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fsync(int file) {
    if (fails("fsync", EIO)) return -1;
    return (int)syscall(SYS_fsync, file);
}

int ftruncate(int file, off_t size) {
    if (fails("ftruncate", ENOSPC)) return -1;
    return (int)syscall(SYS_ftruncate, file, size);
}

pid_t fork(void) {
    if (fails("fork", EAGAIN)) return -1;
    return REAL(fork)();
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (fails("mmap", ENOMEM)) return MAP_FAILED;
    return (void*)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

int memfd_create(const char* name, unsigned flags) {
    if (fails("memfd_create", EMFILE)) return -1;
    return (int)syscall(SYS_memfd_create, name, flags);
}

pid_t waitpid(pid_t pid, int* status, int options) {
    if (fails("waitpid", ECHILD)) return -1;
    return (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
    if (fails("pthread_create", EAGAIN)) return EAGAIN;
    return REAL(pthread_create)(thread, attributes, start, argument);
}

int socketpair(int domain, int type, int protocol, int pair[2]) {
    if (fails("socketpair", EMFILE)) return -1;
    return (int)syscall(SYS_socketpair, domain, type, protocol, pair);
}

int poll(struct pollfd* files, nfds_t number, int milliseconds) {
    if (fails("poll", ENOMEM)) return -1;
    return (int)syscall(SYS_poll, files, number, milliseconds);
}

ssize_t send(int file, const void* from, size_t bytes, int flags) {
    if (fails("send", ENOBUFS)) return -1;
    return syscall(SYS_sendto, file, from, bytes, flags, NULL, 0);
}

ssize_t recv(int file, void* to, size_t bytes, int flags) {
    if (fails("recv", ENOMEM)) return -1;
    return syscall(SYS_recvfrom, file, to, bytes, flags, NULL, NULL);
}
