#include "properties/candidate/written_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string_view>
#include <utility>

namespace attncheck::properties {
namespace {

class Count {
public:
    explicit Count(std::int64_t most_files) : most_files_(most_files) {}

    void add_folder(int above, const char* name, int depth) {
        if (depth > kDeepestFolder) {
            is_too_deep_ = true;
            return;
        }
        const int folder = opened(above, name);
        DIR* const entries = folder < 0 ? nullptr : fdopendir(folder);
        if (!entries) {
            if (folder >= 0) close(folder);
            return;
        }
        struct stat file{};
        if (fstat(folder, &file) == 0) device_ = file.st_dev;
        while (const dirent* const entry = readdir(entries)) {
            const std::string_view one = entry->d_name;
            if (one == "." || one == ".." || files_ > most_files_) continue;
            if (fstatat(folder, entry->d_name, &file, AT_SYMLINK_NOFOLLOW) != 0) continue;
            add(file);
            if (S_ISDIR(file.st_mode)) add_folder(folder, entry->d_name, depth + 1);
        }
        closedir(entries);
    }

    /// What was removed and is still written to.
    void add_removed(pid_t pid) {
        DIR* const entries = opendir(fmt::format("/proc/{}/fd", pid).c_str());
        if (!entries) return;
        struct stat file{};
        while (const dirent* const entry = readdir(entries))
            if (fstatat(dirfd(entries), entry->d_name, &file, 0) == 0 && S_ISREG(file.st_mode) &&
                file.st_nlink == 0 && file.st_dev == device_)
                add(file);
        closedir(entries);
    }

    WrittenFiles sum() const {
        constexpr std::int64_t kBlocksPerMib = 2048;
        return {blocks_ / kBlocksPerMib, files_, is_too_deep_};
    }

private:
    static int opened(int above, const char* name) {
        constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        const int folder = openat(above, name, kHow);
        if (folder >= 0 || errno != EACCES || above == AT_FDCWD) return folder;
        fchmodat(above, name, S_IRWXU, 0);  // made so that its owner cannot list it
        return openat(above, name, kHow);
    }

    void add(const struct stat& file) {
        const bool may_come_again = (file.st_nlink != 1 && !S_ISDIR(file.st_mode));
        if (may_come_again && !seen_.insert({file.st_dev, file.st_ino}).second) return;
        ++files_;
        blocks_ += file.st_blocks;
    }

    std::int64_t most_files_;
    std::int64_t files_ = 0, blocks_ = 0;
    dev_t device_ = 0;
    bool is_too_deep_ = false;
    std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

WrittenFiles written_files(const std::string& folder, std::span<const pid_t> processes,
                           std::int64_t most_files) {
    Count count(most_files);
    count.add_folder(AT_FDCWD, folder.c_str(), 0);
    for (const pid_t pid : processes) count.add_removed(pid);
    return count.sum();
}

}  // namespace attncheck::properties
