// A process that outlives the suite by a moment: what a candidate forked does not go on when the
// suite is killed.
#pragma once

namespace attncheck::properties {

/// Starts it, once for a run. It waits for the end of this process, whatever ends it, and then ends
/// every process that was started for the run, and removes their private folder. Where the system has no process left for it the run
/// goes on without.
void start_guardian();

}  // namespace attncheck::properties
