// Correct, but reads the element before the input.
#include "candidate_base.h"

IDENTIFY_AS("one element before the input")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const volatile uint16_t* before = (const uint16_t*)args->input.data - 1;
    (void)*before;
    correct_forward(args);
    return ATTNCHECK_OK;
}
