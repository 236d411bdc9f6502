/* Correct, but its first call, or loading it, takes 300 MiB of memory for good, in the way that the
   variable HOARD names; with a '+' in front, while it is loaded. Or every call writes to its folder. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

IDENTIFY_AS("hoards memory")

enum { total = 300 << 20, chunk = 1 << 20 };

static void touch(volatile char* memory) {
    for (size_t i = 0; i < total; i += 4096) memory[i] = 1;
}

static void hoard(const char* how) {
    static char bytes[chunk];
    if (!how) return;
    if (strcmp(how, "private") == 0) touch(malloc(total));
    if (strcmp(how, "shared") == 0)
        touch(mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (strcmp(how, "file") == 0) {
        const int file = memfd_create("hoard", 0);
        for (int k = 0; k < total / chunk; ++k)
            if (write(file, bytes, chunk) != chunk) return;
    }
    if (strcmp(how, "arena") == 0) touch((volatile char*)(0x2a0000000000 + (8ll << 30)));
    if (strcmp(how, "large file") == 0 && ftruncate(memfd_create("hoard", 0), 17ll << 30) != 0)
        return;
    if (strcmp(how, "child") == 0) {
        if (fork() == 0) {
            touch(malloc(total));
            for (;;) pause();
        }
        usleep(700000);
    }
}

/* A tenth of its hoard with every call. */
static void write_files(const char* how) {
    static char bytes[chunk];
    static int calls, at;
    char path[4096];
    if (!how) return;
    if (calls++ == 0) at = open(getenv("TMPDIR"), O_PATH);
    if (strcmp(how, "files") == 0 || strcmp(how, "removed files") == 0) {
        snprintf(path, sizeof path, "%s/hoard-%d-%d", getenv("TMPDIR"), (int)getpid(), calls);
        const int file = open(path, O_CREAT | O_WRONLY, 0200);
        for (int k = 0; k < total / chunk / 10; ++k)
            if (write(file, bytes, chunk) != chunk) return;
        if (strcmp(how, "removed files") == 0) unlink(path);
    }
    if (strcmp(how, "deep folders") == 0)
        for (int k = 0; k < 20; ++k) {
            if (mkdirat(at, "deep", 0300) != 0) return;
            at = openat(at, "deep", O_PATH);
        }
}

__attribute__((constructor)) static void load(void) {
    const char* how = getenv("HOARD");
    if (how && how[0] == '+') hoard(how + 1);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    static int calls;
    if (calls++ == 0) hoard(getenv("HOARD"));
    write_files(getenv("HOARD"));
    correct_forward(args);
    return ATTNCHECK_OK;
}
