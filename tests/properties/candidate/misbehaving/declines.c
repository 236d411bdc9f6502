// Implements nothing of what it exports, and says so.
#include "candidate_base.h"

IDENTIFY_AS("declines")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    return ATTNCHECK_DECLINED;
}
