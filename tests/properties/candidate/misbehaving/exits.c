// Calls exit(3) in the middle of a call.
#include "candidate_base.h"

#include <stdlib.h>

IDENTIFY_AS("exits")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    exit(3);
}
