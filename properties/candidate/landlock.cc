#include "properties/candidate/landlock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

// Numbers of linux/landlock.h, whose installed copy may be older than the kernel.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;  // on every architecture
constexpr std::uint32_t kAskVersion = 1;
constexpr int kPathBeneath = 1;

constexpr std::uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2,
                        kReadFolder = 1 << 3, kMakeDevice = 1 << 6, kMakeBlockDevice = 1 << 11,
                        kRefer = 1 << 13,     // since version 2
                        kTruncate = 1 << 14,  // 3
                        kControl = 1 << 15;   // 5: ioctl on devices
constexpr std::uint64_t kOfFirstVersion = (1 << 13) - 1;
constexpr std::uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kControl;
constexpr std::uint64_t kTcp = 3;     // bind and connect, since version 4
constexpr std::uint64_t kScopes = 3;  // abstract sockets and signals, since version 6

struct Ruleset {
    std::uint64_t files = 0, network = 0, scoped = 0;
};

struct [[gnu::packed]] PathRule {
    std::uint64_t access;
    std::int32_t folder;
};

std::uint64_t handled_by(int version, LandlockFiles files) {
    if (files == LandlockFiles::none) return 0;
    const std::uint64_t all = kOfFirstVersion | (version >= 2 ? kRefer : 0) |
                              (version >= 3 ? kTruncate : 0) | (version >= 5 ? kControl : 0);
    return files == LandlockFiles::all ? all : all & ~kWriteFile;
}

class Rules {
public:
    Rules(int version, LandlockFiles files) : handled_(handled_by(version, files)) {
        const Ruleset ruleset{handled_, version >= 4 ? kTcp : 0,
                              version >= kLandlockScopesSignals ? kScopes : 0};
        const std::size_t size = version >= kLandlockScopesSignals ? sizeof ruleset
                                 : version >= 4                    ? 2 * sizeof ruleset.files
                                                                   : sizeof ruleset.files;
        descriptor_ = static_cast<int>(syscall(kCreateRuleset, &ruleset, size, 0));
    }

    /// Of the file or folder itself: a link would lead to what is hidden.
    void allow(const std::string& path, std::uint64_t access) const {
        const int at = open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (at < 0) return;
        struct stat status{};
        if (fstat(at, &status) == 0 && !S_ISLNK(status.st_mode)) {
            access &= handled_;
            const PathRule rule{S_ISDIR(status.st_mode) ? access : access & kOfFiles, at};
            (void)syscall(kAddRule, descriptor_, kPathBeneath, &rule, 0);
        }
        close(at);
    }

    /// A folder that holds something hidden is allowed entry by entry.
    void allow_reading(const fs::path& path, const std::vector<std::string>& hidden) const {
        bool holds_hidden = false;
        for (const std::string& one : hidden) {
            if (path == one) return;
            const std::string folder = path == "/" ? "/" : path.string() + '/';
            holds_hidden = holds_hidden || one.starts_with(folder);
        }
        if (!holds_hidden) return allow(path, kExecute | kReadFile | kReadFolder);
        std::error_code error;
        for (fs::directory_iterator entry(path, error), end; !error && entry != end;
             entry.increment(error))
            allow_reading(entry->path(), hidden);
    }

    int descriptor() const { return descriptor_; }

private:
    std::uint64_t handled_;
    int descriptor_ = -1;
};

}  // namespace

int landlock_version() {
    const long version = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
    return version > 0 ? static_cast<int>(version) : 0;
}

int landlock_rules(int version, const LandlockPaths& paths, LandlockFiles files) {
    if (version <= 0) return -1;
    const Rules rules(version, files);
    if (rules.descriptor() < 0 || files == LandlockFiles::none) return rules.descriptor();
    rules.allow("/", kReadFolder);
    rules.allow_reading("/", paths.hidden);
    for (const std::string& path : paths.writable)
        rules.allow(path, ~(kMakeDevice | kMakeBlockDevice | kControl));
    for (const std::string& path : paths.devices)
        rules.allow(path, kReadFile | kWriteFile | kReadFolder | kControl);
    return rules.descriptor();
}

bool landlock_restrict(int rules) { return syscall(kRestrictSelf, rules, 0) == 0; }

}  // namespace attncheck::properties
