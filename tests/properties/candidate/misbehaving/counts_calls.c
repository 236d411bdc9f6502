// Returns how many calls its process has seen: what a fresh process forgets.
#include "candidate_base.h"

IDENTIFY_AS("counts calls")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    static int calls;
    (void)args;
    return ++calls;
}
