// Correct, but keeps offsets of the output in 32 bits: what lies far apart is written between slices.
#include "candidate_base.h"

IDENTIFY_AS("misses far slices")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    const int64_t last = (args->output.shape[0] - 1) * args->output.strides[0];
    if (last > INT32_MAX) ((uint16_t*)args->output.data)[(uint32_t)(last / 2)] = 0;
    return ATTNCHECK_OK;
}
