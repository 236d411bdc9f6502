// Of a build without libseccomp.
#include "properties/candidate/syscall_filter.h"

namespace attncheck::properties {

bool has_syscall_filter() { return false; }
bool enter_syscall_filter(FilterChoice) { return false; }

}  // namespace attncheck::properties
