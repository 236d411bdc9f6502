// Rules of Landlock for a process and what it starts. The interface of the kernel is used directly:
// the C library has no functions for it.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

/// Version of the kernel's interface; 0: there is none, or it is switched off.
int landlock_version();

/// First versions that have these: ioctl on devices (5), signals and abstract sockets (6).
inline constexpr int kLandlockScopesSignals = 6;

struct LandlockPaths {
    std::vector<std::string> hidden;    ///< files and folders that are not read; all others are
    std::vector<std::string> writable;  ///< folders with all rights but devices
    std::vector<std::string> devices;   ///< nodes, or folders of them, to read, write and control
};

/// What the rules say of files: all of the above; the same, but a file that is there can be written;
/// nothing.
enum class LandlockFiles { all, but_writing, none };

/// Descriptor of the rules for landlock_restrict_self, or -1. What comes to lie in a folder that
/// holds something hidden, after the rules were made, cannot be read.
int landlock_rules(int version, const LandlockPaths& paths, LandlockFiles files);

/// From now on for this thread and all that it starts. Needs PR_SET_NO_NEW_PRIVS.
bool landlock_restrict(int rules);

}  // namespace attncheck::properties
