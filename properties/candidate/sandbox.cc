#include "properties/candidate/sandbox.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <signal.h>
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

/// A context is what a kernel needs first. CUDA Driver API, "Initialization" and "Primary Context
/// Management".
bool cuda_begins() {
    constexpr unsigned kPatience = 60;  // seconds
    signal(SIGALRM, SIG_DFL);
    alarm(kPatience);
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return false;
    const auto begin = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto retain =
        reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    void* context = nullptr;
    return begin && retain && begin(0) == 0 && retain(&context, 0) == 0;
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

Devices devices_of_machine() { return {accelerators(), cuda_begins}; }

SandboxMode usual_sandbox() {
#ifdef ATTNCHECK_COVERAGE
    return SandboxMode::off;
#else
    return SandboxMode::on;
#endif
}

void Sandbox::make_rules(const std::vector<std::string>& hidden,
                         const std::vector<std::string>& nodes, LandlockFiles files) {
    landlock_ = landlock_version();
    LandlockPaths paths{hidden, {folder_}, {std::begin(kHarmless), std::end(kHarmless)}};
    paths.hidden.push_back("/dev");
    paths.devices.insert(paths.devices.end(), nodes.begin(), nodes.end());
    if (rules_ >= 0) close(rules_);
    rules_ = landlock_rules(landlock_, paths, files);
    files_ = files;
    if (!works_in_a_copy([this] { return allow_walls() && landlock_restrict(rules_); }))
        landlock_ = 0;
}

void Sandbox::make_filter() {
    const FilterChoice choice{landlock_ < kLandlockScopesSignals, has_devices_};
    has_filter_ = has_syscall_filter() &&
                  works_in_a_copy([&] { return allow_walls() && enter_syscall_filter(choice); });
}

/// A library may do its work in a process that its worker starts.
bool Sandbox::begins_behind_walls(const std::function<bool()>& work) const {
    return works_in_a_copy([&] { return enter() && works_in_a_copy(work); });
}

void Sandbox::let_begin(const std::vector<std::string>& hidden, const Devices& devices) {
    const auto begins = [&] { return begins_behind_walls(devices.begin); };
    if (begins() || !works_in_a_copy(devices.begin)) return;
    if (landlock_ > 0) {
        for (const LandlockFiles files : {LandlockFiles::but_writing, LandlockFiles::none}) {
            make_rules(hidden, devices.nodes, files);
            if (begins()) return;
        }
        landlock_ = 0;
        make_filter();
        if (begins()) return;
    }
    has_filter_ = false;
    if (begins()) return;
    make_rules(hidden, devices.nodes, LandlockFiles::all);  // no wall is the reason
    make_filter();
}

Sandbox::Sandbox(SandboxMode mode, const std::vector<std::string>& hidden, const Devices& devices)
    : folder_(private_folder()) {
    // Processes of the same user cannot read or change this one.
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    has_devices_ = mode != SandboxMode::strict && !devices.nodes.empty();
    make_rules(hidden, has_devices_ ? devices.nodes : std::vector<std::string>(),
               LandlockFiles::all);
    make_filter();
    const bool has_walls = landlock_ > 0 || has_filter_;
    if (has_devices_) let_begin(hidden, devices);
    if (landlock_ > 0) level_ = fmt::format("landlock {}", landlock_);
    if (landlock_ > 0 && files_ != LandlockFiles::all)
        level_ += files_ == LandlockFiles::none ? " without files" : " without writing of files";
    if (has_filter_) level_ += level_.empty() ? "seccomp" : ", seccomp";
    if (level_.empty())
        level_ = has_walls ? "none that the devices begin behind" : "none that the system has";
    if (has_devices_) level_ += ", devices open";
    const bool limits_signals = landlock_ < kLandlockScopesSignals;
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
    if (!one) one = std::make_shared<Sandbox>(mode, hidden, devices_of_machine());
    return one;
}

bool Sandbox::enter() const {
    if (!allow_walls()) return false;
    drop_capabilities();
    return (landlock_ == 0 || landlock_restrict(rules_)) &&
           (!has_filter_ ||
            enter_syscall_filter({landlock_ < kLandlockScopesSignals, has_devices_}));
}

}  // namespace attncheck::properties
