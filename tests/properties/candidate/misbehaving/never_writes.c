// Says it is done and has done nothing.
#include "candidate_base.h"

IDENTIFY_AS("never writes")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    return ATTNCHECK_OK;
}
