// Standard input, output and error, whatever state the caller left them in.
#pragma once

namespace attncheck::properties {

/// Opens /dev/null on closed ones, so that no other file gets their numbers; a reader that closes
/// its pipe and a limit on the size of files become errors of write() instead of ending the
/// program.
void prepare_standard_streams();

/// Writes out what was printed. Returns `status`, or kUsage in the place of 0 when standard output
/// could not take it. A reader that closed its pipe has seen enough: no error.
int flush_standard_output(int status);

}  // namespace attncheck::properties
