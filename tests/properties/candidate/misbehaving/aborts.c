// Ends its process by abort().
#include "candidate_base.h"

#include <stdlib.h>

IDENTIFY_AS("aborts")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    abort();
}
