// What a candidate may do to the machine that it runs on: the walls around its processes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attncheck::properties {

/// on: as far as the system has it; strict: all of it, or the run does not begin.
enum class SandboxMode { off, on, strict };
inline constexpr std::array<std::string_view, 3> kSandboxNames{"off", "on", "strict"};
constexpr std::string_view name_of(SandboxMode mode) {
    return kSandboxNames[static_cast<std::size_t>(mode)];
}

/// on; off in a build that counts executed lines, because libraries write the counts to files.
SandboxMode usual_sandbox();

/// Made once by the suite, entered by every worker between fork and exec.
///
/// Files     read and execute only; writable are one private folder and harmless devices. The
///           suite's own programs and the other libraries of `hidden` cannot be read.
///           Landlock, Salaun 2021 (linux Documentation/userspace-api/landlock.rst).
/// Processes outside of the sandbox cannot be signalled, traced, read or limited.
/// Network   none: the only sockets are pairs.
/// System    no namespaces, mounts, keys, SysV objects, io_uring, modules or clocks. Changes of a
///           file's mode, owner, times and attributes are accepted and not made.
/// The same for root: its capabilities go, but those to read.
class Sandbox {
public:
    /// The sandbox of this process for this mode, null for `off`: made at the first call. Throws
    /// LoadError when `strict` is asked for and the system lacks some of it.
    static std::shared_ptr<const Sandbox> shared(SandboxMode mode,
                                                 const std::vector<std::string>& hidden);

    ~Sandbox();
    Sandbox(const Sandbox&) = delete;
    Sandbox& operator=(const Sandbox&) = delete;

    /// In a process with one thread that is about to become another program. False when a wall that
    /// stood before does not stand now.
    bool enter() const;

    /// The walls that stand: "landlock 7, seccomp".
    const std::string& level() const { return level_; }

    /// The one folder that may be written. It ends with the run.
    const std::string& folder() const { return folder_; }

private:
    Sandbox(SandboxMode mode, const std::vector<std::string>& hidden);

    int landlock_ = 0;  ///< version of the interface; 0: the system has none
    int rules_ = -1;    ///< descriptor of the Landlock rules
    bool has_filter_ = false;
    std::string level_, folder_;
};

/// Environment of a process in the sandbox: of `own` what is on the list of docs/sandbox.md or in
/// `more`, and places for temporary files and compilers' caches in `folder`.
std::vector<std::string> sandboxed_environment(const char* const* own,
                                               const std::vector<std::string>& more,
                                               const std::string& folder);

/// Variables of `own` that the sandbox withholds and whose name is a string in `file`, the bytes of a library or a source.
std::vector<std::string> withheld_variables_named_in(std::string_view file, const char* const* own,
                                                     const std::vector<std::string>& more);

}  // namespace attncheck::properties
