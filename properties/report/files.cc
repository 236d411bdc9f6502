#include "properties/report/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace attncheck::properties {

void write_file(const std::string& path, const std::string& text) {
    const std::string temporary = fmt::format("{}.{}.part", path, getpid());
    {
        std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
        out << text;
        out.flush();
        if (!out) {
            std::remove(temporary.c_str());
            throw std::runtime_error(fmt::format("cannot write {}", path));
        }
    }
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
        std::remove(temporary.c_str());
        throw std::runtime_error(fmt::format("cannot write {}", path));
    }
}

void check_writable(const std::string& path) {
    if (std::filesystem::is_directory(path))
        throw std::runtime_error(fmt::format("cannot write {}: it is a directory", path));
    const std::string temporary = fmt::format("{}.{}.part", path, getpid());
    const int fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0) throw std::runtime_error(fmt::format("cannot write {}", path));
    close(fd);
    std::remove(temporary.c_str());
}

}  // namespace attncheck::properties
