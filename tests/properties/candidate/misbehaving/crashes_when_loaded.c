/* Reads address 0 in a constructor, before anybody has asked it anything. */
#include "candidate_base.h"

IDENTIFY_AS("crashes when loaded")

__attribute__((constructor)) static void load(void) {
    const volatile int* const nowhere = 0;
    (void)*nowhere;
}
