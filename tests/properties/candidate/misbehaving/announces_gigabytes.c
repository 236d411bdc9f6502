/* Says hello in the worker's place, and announces four gigabytes of text. */
#include "candidate_base.h"

#include <sys/socket.h>

IDENTIFY_AS("announces gigabytes")

__attribute__((constructor)) static void say_hello(void) {
    const uint32_t hello[2] = {0xa77c0001u, 0xfffffff0u};
    for (int fd = 3; fd < 64; ++fd) send(fd, hello, sizeof hello, MSG_NOSIGNAL);
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
