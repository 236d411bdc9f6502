// System calls that no kernel needs and that reach beyond its process, as a seccomp filter.
#pragma once

namespace attncheck::properties {

/// Whether this build has libseccomp.
bool has_syscall_filter();

/// What depends on the system and on the level of the sandbox.
struct FilterChoice {
    bool limits_signals = false;  ///< only this process can be signalled: Landlock does not see to it
    bool has_devices = false;     ///< the driver's library may listen on a local socket
};

/// For this thread and all that it starts. False when the system refuses.
bool enter_syscall_filter(FilterChoice choice);

}  // namespace attncheck::properties
