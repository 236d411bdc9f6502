#include "properties/candidate/sandbox.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "properties/candidate/candidate.h"
#include "properties/candidate/landlock.h"
#include "properties/candidate/private_folder.h"
#include "properties/candidate/syscall_filter.h"

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHarmless[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                     "/dev/urandom"};

/// Nodes of accelerators, as their drivers name them; all begin with one of these.
constexpr std::string_view kAccelerators[] = {"nvidia", "kfd",      "dri",      "accel",
                                              "davinci", "devmm_svm", "hisi_hdc"};

std::vector<std::string> accelerators() {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator entry("/dev", error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (std::ranges::any_of(kAccelerators, [&](auto one) { return name.starts_with(one); }))
            found.push_back(entry->path());
    }
    return found;
}

/// With the rights of root gone but for reading what others may not: files may belong to anybody.
void drop_capabilities() {
    for (int one = 0; prctl(PR_CAPBSET_READ, one, 0, 0, 0) >= 0; ++one)
        if (one != CAP_DAC_OVERRIDE && one != CAP_DAC_READ_SEARCH)
            (void)prctl(PR_CAPBSET_DROP, one, 0, 0, 0);  // others than root have none
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

/// Whether a copy of this process can do something that it could not undo.
template <typename Work>
bool works_in_a_copy(const Work& work) {
    const pid_t pid = fork();
    if (pid == 0) _exit(work() ? 0 : 1);
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool allow_walls() { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; }

}  // namespace

SandboxMode usual_sandbox() {
#ifdef ATTNCHECK_COVERAGE
    return SandboxMode::off;
#else
    return SandboxMode::on;
#endif
}

Sandbox::Sandbox(SandboxMode mode, const std::vector<std::string>& hidden)
    : folder_(private_folder()) {
    // Processes of the same user cannot read or change this one.
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    landlock_ = landlock_version();
    LandlockPaths paths{hidden, {folder_}, {std::begin(kHarmless), std::end(kHarmless)}};
    paths.hidden.push_back("/dev");
    const std::vector<std::string> nodes =
        mode == SandboxMode::strict ? std::vector<std::string>() : accelerators();
    paths.devices.insert(paths.devices.end(), nodes.begin(), nodes.end());
    rules_ = landlock_rules(landlock_, paths);
    if (!works_in_a_copy([this] { return allow_walls() && landlock_restrict(rules_); }))
        landlock_ = 0;
    const bool limits_signals = landlock_ < kLandlockScopesSignals;
    has_filter_ = has_syscall_filter() && works_in_a_copy([limits_signals] {
                      return allow_walls() && enter_syscall_filter(limits_signals);
                  });
    if (landlock_ > 0) level_ = fmt::format("landlock {}", landlock_);
    if (has_filter_) level_ += level_.empty() ? "seccomp" : ", seccomp";
    if (level_.empty()) level_ = "none that the system has";
    if (!nodes.empty()) level_ += ", devices open";
    if (mode != SandboxMode::strict || (!limits_signals && has_filter_)) return;
    if (limits_signals)
        throw LoadError(fmt::format(
            "--sandbox strict: the system has {}, expected at least landlock {} (Linux 6.12)",
            landlock_ > 0 ? fmt::format("landlock {}", landlock_) : "no landlock",
            kLandlockScopesSignals));
    throw LoadError(has_syscall_filter()
                        ? "--sandbox strict: the system refuses system call filters (seccomp)"
                        : "--sandbox strict: this build has no libseccomp");
}

Sandbox::~Sandbox() {
    if (rules_ >= 0) close(rules_);
}

std::shared_ptr<const Sandbox> Sandbox::shared(SandboxMode mode,
                                               const std::vector<std::string>& hidden) {
    if (mode == SandboxMode::off) return nullptr;
    static std::map<std::pair<SandboxMode, std::vector<std::string>>,
                    std::shared_ptr<const Sandbox>>
        made;
    auto& one = made[{mode, hidden}];
    if (!one) one.reset(new Sandbox(mode, hidden));
    return one;
}

bool Sandbox::enter() const {
    if (!allow_walls()) return false;
    drop_capabilities();
    return (landlock_ == 0 || landlock_restrict(rules_)) &&
           (!has_filter_ || enter_syscall_filter(landlock_ < kLandlockScopesSignals));
}

}  // namespace attncheck::properties
