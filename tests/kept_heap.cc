// Freed memory stays with a test program as it does with the command.
#include "properties/cli/heap.h"

namespace {

const bool kKept = (attncheck::properties::keep_freed_memory(), true);

}  // namespace
