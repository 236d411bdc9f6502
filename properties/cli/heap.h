// The heap of the command and of the processes that it forks.
#pragma once

namespace attncheck::properties {

/// Memory that a case frees stays with the process for the next one: pages that go back to the system are
/// cleared and faulted in again, a tenth of the time of a case. Blocks of 32 MiB and more go back.
void keep_freed_memory();

}  // namespace attncheck::properties
