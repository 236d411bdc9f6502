// What a candidate may do to the machine that it runs on: the walls around its processes.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "properties/candidate/landlock.h"

namespace attncheck::properties {

/// on: as far as the system has it; strict: all of it, or the run does not begin.
enum class SandboxMode { off, on, strict };
inline constexpr std::array<std::string_view, 3> kSandboxNames{"off", "on", "strict"};
constexpr std::string_view name_of(SandboxMode mode) {
    return kSandboxNames[static_cast<std::size_t>(mode)];
}

/// on; off in a build that counts executed lines, because libraries write the counts to files.
SandboxMode usual_sandbox();

/// Accelerators of the machine, and a trial of them.
struct Devices {
    std::vector<std::string> nodes;  ///< in /dev
    std::function<bool()> begin;     ///< in a process of its own: whether a driver lets it begin
};

/// Nodes as drivers name them; the trial asks CUDA for a context, and fails where there is no CUDA.
Devices devices_of_machine();

/// Made once by the suite, entered by every worker between fork and exec.
///
/// Files     read and execute only; writable are one private folder and harmless devices. The
///           suite's own programs and the other libraries of `hidden` cannot be read.
///           Landlock, Salaun 2021 (linux Documentation/userspace-api/landlock.rst).
/// Processes outside of the sandbox cannot be signalled, traced, read or limited.
/// Network   none: the only sockets are pairs, and with devices a local one that nothing connects to.
/// System    no namespaces, mounts, keys, SysV objects, io_uring, modules or clocks. Changes of a
///           file's mode, owner, times and attributes are accepted and not made.
/// The same for root: its capabilities go, but those to read.
///
/// With devices, at level on: where a driver begins without walls and not behind them, walls go until
/// it does: first the one around writing files, then that around files, then the others. level() says so.
/// Where it does not begin without them either, all stay.
class Sandbox {
public:
    /// The sandbox of this process for this mode, null for `off`: made at the first call. Throws
    /// LoadError when `strict` is asked for and the system lacks some of it.
    static std::shared_ptr<const Sandbox> shared(SandboxMode mode,
                                                 const std::vector<std::string>& hidden);

    Sandbox(SandboxMode mode, const std::vector<std::string>& hidden, const Devices& devices);
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
    void make_rules(const std::vector<std::string>& hidden, const std::vector<std::string>& nodes,
                    LandlockFiles files);
    void make_filter();
    bool begins_behind_walls(const std::function<bool()>& work) const;
    void let_begin(const std::vector<std::string>& hidden, const Devices& devices);

    int landlock_ = 0;  ///< version of the interface; 0: the system has none
    int rules_ = -1;    ///< descriptor of the Landlock rules
    bool has_filter_ = false;
    bool has_devices_ = false;
    LandlockFiles files_ = LandlockFiles::all;
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
