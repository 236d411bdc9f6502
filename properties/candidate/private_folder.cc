#include "properties/candidate/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

struct Folder {
    std::string path;
    pid_t owner = -1;
    ~Folder() {
        if (owner == getpid()) remove_folder(path);
    }
};

Folder& folder() {
    static Folder one;
    return one;
}

template <typename Visit>
void for_each_name(int folder, const Visit& visit) {
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const entries = again < 0 ? nullptr : fdopendir(again);
    if (!entries) {
        if (again >= 0) close(again);
        return;
    }
    std::vector<std::string> names;
    while (const dirent* const entry = readdir(entries))
        if (const std::string name = entry->d_name; name != "." && name != "..") names.push_back(name);
    closedir(entries);
    for (const std::string& name : names) visit(name);
}

/// Removes the files of a folder, and its folders when what is in them was moved up: a tree may be
/// deeper than paths and descriptors reach. Whether anything changed.
bool empty_once(int top, long& moved) {
    bool changed = false;
    for_each_name(top, [&](const std::string& name) {
        if (unlinkat(top, name.c_str(), 0) == 0 || unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0) {
            changed = true;
            return;
        }
        fchmodat(top, name.c_str(), S_IRWXU, 0);  // no link: those are gone
        const int below = openat(top, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0) return;
        for_each_name(below, [&](const std::string& inner) {
            if (unlinkat(below, inner.c_str(), 0) == 0) {
                changed = true;
                return;
            }
            fchmodat(below, inner.c_str(), S_IRWXU, 0);  // moving changes its entry for ".."
            const std::string other = fmt::format(".moved-{}", ++moved);
            changed = renameat(below, inner.c_str(), top, other.c_str()) == 0 || changed;
        });
        close(below);
    });
    return changed;
}

}  // namespace

const std::string& private_folder() {
    Folder& one = folder();
    if (!one.path.empty()) return one.path;
    std::error_code error;
    fs::path place = fs::temp_directory_path(error);
    if (error) place = "/tmp";
    std::string path = (fs::canonical(place, error) / "attncheck-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr)
        throw LoadError(fmt::format("cannot make a folder for the candidate in {}: {}",
                                    place.string(), std::strerror(errno)));
    one.path = path;
    one.owner = getpid();
    return one.path;
}

const std::string& private_folder_if_made() { return folder().path; }

void remove_folder(const std::string& path) {
    if (path.empty() || rmdir(path.c_str()) == 0) return;  // mostly nothing was written
    const int top = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (top < 0) return;
    // Each pass may move entries up. Something that still writes gets no more than so many.
    constexpr int kMostPasses = 100'000;
    long moved = 0;
    for (int pass = 0; pass < kMostPasses && empty_once(top, moved); ++pass) {
    }
    close(top);
    rmdir(path.c_str());
}

}  // namespace attncheck::properties
