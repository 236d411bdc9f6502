// System calls that no kernel needs and that reach beyond its process, as a seccomp filter.
#pragma once

namespace attncheck::properties {

/// Whether this build has libseccomp.
bool has_syscall_filter();

/// For this thread and all that it starts. `limits_signals`: only this process can be signalled,
/// for systems where Landlock does not see to it. False when the system refuses.
bool enter_syscall_filter(bool limits_signals);

}  // namespace attncheck::properties
