/* Correct, with a name that a terminal obeys, that is no UTF-8, and that has a second line. */
#include "candidate_base.h"

IDENTIFY_AS("odd \x1b]0;title\x07\x1b[2J\x1b[8m \xff\xfe\x7f name\nacc=half\nnsa_compress_grad\n")

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    correct_forward(args);
    return ATTNCHECK_OK;
}
