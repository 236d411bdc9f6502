/* Correct, and exports an entry point under a name that is none. */
#include "candidate_base.h"

IDENTIFY_AS("misspelt export")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}

int attncheck_flash_attention_scores(const void* args) {
    (void)args;
    return ATTNCHECK_OK;
}
