// Built for an ABI version that does not exist yet.
#include <attncheck/candidate.h>

uint32_t attncheck_abi_version(void) { return 77; }
const char* attncheck_candidate_name(void) { return "from the future"; }
