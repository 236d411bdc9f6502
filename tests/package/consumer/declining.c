/* The least a candidate can be: it names itself and declines every call. */
#include <attncheck/candidate.h>
#include <attncheck/nsa_module.h>

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) { return "declining c kernel"; }

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    (void)args;
    return ATTNCHECK_DECLINED;
}
