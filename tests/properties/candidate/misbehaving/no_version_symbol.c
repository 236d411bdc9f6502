// Has a name but does not say which ABI version it was built for.
#include <attncheck/candidate.h>

const char* attncheck_candidate_name(void) { return "no version"; }
