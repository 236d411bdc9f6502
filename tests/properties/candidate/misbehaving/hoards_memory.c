/* Correct, but its first call, or loading it, takes 300 MiB of memory for good, in the way that the
   variable HOARD names; with a '+' in front, while it is loaded. */
#define _GNU_SOURCE
#include "candidate_base.h"

#include <stdlib.h>
#include <sys/mman.h>
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

__attribute__((constructor)) static void load(void) {
    const char* how = getenv("HOARD");
    if (how && how[0] == '+') hoard(how + 1);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    static int calls;
    if (calls++ == 0) hoard(getenv("HOARD"));
    correct_forward(args);
    return ATTNCHECK_OK;
}
