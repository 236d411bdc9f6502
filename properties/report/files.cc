#include "properties/report/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

/// What a path leads to.
struct Target {
    fs::path path;        ///< without symbolic links in its last part
    int descriptor = -1;  ///< /dev/stdout and the like: what is open there may have no path
    bool in_place = false;

    bool is_replaced() const { return descriptor < 0 && !in_place; }
};

/// The number N of /dev/fd/N and /proc/self/fd/N; -1 of any other path.
int descriptor_of(const fs::path& path) {
    const std::string text = path.lexically_normal().string();
    for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
        if (!text.starts_with(folder)) continue;
        int number = -1;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data() + folder.size(), end, number);
        if (read.ec == std::errc{} && read.ptr == end) return number;
    }
    return -1;
}

/// Links are followed by hand: rename() would replace the link.
Target target_of(const std::string& path) {
    constexpr int kMostLinks = 40;  // as the kernel
    Target target{path};
    std::error_code error;
    for (int links = 0; links < kMostLinks; ++links) {
        target.descriptor = descriptor_of(target.path);
        if (target.descriptor >= 0) return target;
        if (!fs::is_symlink(fs::symlink_status(target.path, error))) break;
        const fs::path next = fs::read_symlink(target.path, error);
        if (error) break;
        target.path = target.path.parent_path() / next;  // an absolute one stands alone
    }
    const fs::file_status status = fs::status(target.path, error);
    target.in_place = fs::exists(status) && !fs::is_regular_file(status);
    return target;
}

/// 0, or the errno of what failed, as the functions below.
int write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : EIO;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
}

int write_there(const Target& target, const std::string& text) {
    std::fflush(nullptr);  // the report comes after what was printed
    const int fd = target.descriptor >= 0 ? fcntl(target.descriptor, F_DUPFD_CLOEXEC, 3)
                                          : open(target.path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int failed = write_all(fd, text);
    return close(fd) == 0 || failed != 0 ? failed : errno;
}

fs::path temporary_of(const Target& target) {
    return fmt::format("{}.{}.part", target.path.string(), getpid());
}

int replace(const Target& target, const std::string& text) {
    const fs::path temporary = temporary_of(target);
    const int fd =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    struct stat old{};
    if (stat(target.path.c_str(), &old) == 0) fchmod(fd, old.st_mode & 07777);
    int failed = write_all(fd, text);
    const auto also = [&](int result) { failed = failed == 0 && result != 0 ? errno : failed; };
    also(fsync(fd));  // a power cut must not leave an empty file behind
    also(close(fd));
    if (failed == 0) also(std::rename(temporary.c_str(), target.path.c_str()));
    if (failed != 0) std::remove(temporary.c_str());
    return failed;
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
    const Target target = target_of(path);
    if (const int failed = target.is_replaced() ? replace(target, text) : write_there(target, text); failed != 0)
        throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::generic_category().message(failed)));
}

std::string read_report(const std::string& path) {
    if (fs::is_directory(path)) throw std::runtime_error(fmt::format("cannot read {}: it is a directory", path));
    std::ifstream in(path, std::ios::binary);
    std::string text(kLargestReport + 1, '\0');
    in.read(text.data(), std::ssize(text));
    if (in.bad() || (!in.eof() && in.gcount() == 0))
        throw std::runtime_error(fmt::format("cannot read {}", path));
    text.resize(static_cast<std::size_t>(in.gcount()));
    return text;
}

void check_writable(const std::string& path) {
    const auto refuse = [&](const std::string& why) {
        throw std::runtime_error(fmt::format("cannot write {}: {}", path, why));
    };
    const auto refuse_for = [&](int error) { refuse(std::generic_category().message(error)); };
    const Target target = target_of(path);
    if (target.descriptor >= 0) {
        const int flags = fcntl(target.descriptor, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) refuse_for(EBADF);
    } else if (target.in_place) {
        if (fs::is_directory(target.path)) refuse("it is a directory");
        if (access(target.path.c_str(), W_OK) != 0) refuse_for(errno);
    } else {
        const fs::path temporary = temporary_of(target);
        const int fd =
            open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0) refuse_for(errno);
        close(fd);
        std::remove(temporary.c_str());
    }
}

bool is_same_file(const std::string& one, const std::string& other) {
    std::error_code error;
    const auto full = [&](const std::string& path) {
        return fs::weakly_canonical(fs::absolute(target_of(path).path, error), error);
    };
    return full(one) == full(other);
}

bool is_replaceable(const std::string& path) { return target_of(path).is_replaced(); }

}  // namespace attncheck::properties
