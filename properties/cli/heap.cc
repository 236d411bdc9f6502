#include "properties/cli/heap.h"

#include <cstdlib>  // a header of the library says whose it is

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attncheck::properties {

void keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that is allowed
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace attncheck::properties
