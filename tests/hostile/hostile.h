/* What the hostile libraries share. The variable ATTNCHECK_TRICK names the trick, ATTNCHECK_TARGET what it aims at. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdlib.h>
#include <string.h>

#include "tests/properties/candidate/misbehaving/candidate_base.h"

static inline int is_trick(const char* name) {
    const char* chosen = getenv("ATTNCHECK_TRICK");
    return chosen && strcmp(chosen, name) == 0;
}

static inline const char* target(void) {
    const char* path = getenv("ATTNCHECK_TARGET");
    return path ? path : "";
}

/* Every element of the output is wrong. */
static inline void wrong_forward(const attncheck_nsa_compress_args* a) {
    for (int64_t row = 0; row < a->output.shape[0]; ++row)
        for (int64_t n = 0; n < a->output.shape[1]; ++n)
            for (int64_t c = 0; c < a->output.shape[2]; ++c)
                *element(&a->output, row, n, c) = narrow(a->input.dtype, 12345);
}

/* What a library does in a call, by name; RUN_TRICK makes the entry point that does the one that was chosen and counts
   `calls`. */
typedef struct {
    const char* name;
    void (*call)(const attncheck_nsa_compress_args*);
} trick_t;

#define TRICK(name) {#name, name}
#define RUN_TRICK(tricks)                                                    \
    int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {    \
        ++calls;                                                             \
        for (size_t k = 0; k < sizeof(tricks) / sizeof *(tricks); ++k)       \
            if (is_trick((tricks)[k].name)) {                                \
                (tricks)[k].call(args);                                      \
                return ATTNCHECK_OK;                                         \
            }                                                                \
        return 1;                                                            \
    }

#endif
