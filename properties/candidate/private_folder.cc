#include "properties/candidate/private_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

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
    std::error_code error;
    fs::remove_all(path, error);
    if (!error) return;
    // A folder that its owner may not read.
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;) {
        struct stat status{};
        if (lstat(at->path().c_str(), &status) == 0 && S_ISDIR(status.st_mode))
            chmod(at->path().c_str(), S_IRWXU);
        at.increment(error);
    }
    fs::remove_all(path, error);
}

}  // namespace attncheck::properties
