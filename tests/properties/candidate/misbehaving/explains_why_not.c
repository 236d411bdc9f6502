/* Says on standard error why it cannot be used, and then has no version. */
#include <attncheck/candidate.h>
#include <stdio.h>

uint32_t attncheck_abi_version(void) {
    fputs("no device of mine is here\n", stderr);
    return 0;
}
const char* attncheck_candidate_name(void) { return "without a device"; }
