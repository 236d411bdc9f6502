// Has an ABI version but no name.
#include <attncheck/candidate.h>

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
