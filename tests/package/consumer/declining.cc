// The same as declining.c, from C++: the header gives the entry points C linkage.
#include <attncheck/candidate.h>

uint32_t attncheck_abi_version() { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name() { return "declining cxx kernel"; }

int attncheck_nsa_compress(const attncheck_nsa_compress_args*) { return ATTNCHECK_DECLINED; }
