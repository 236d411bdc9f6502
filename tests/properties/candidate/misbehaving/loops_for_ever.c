// Never returns.
#include "candidate_base.h"

IDENTIFY_AS("loops for ever")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    volatile int forever = 1;
    while (forever) {
    }
    return ATTNCHECK_OK;
}
