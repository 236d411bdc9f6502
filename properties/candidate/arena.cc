#include "properties/candidate/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "properties/candidate/content_hash.h"

namespace attncheck::properties {
namespace {

[[noreturn]] void refuse(const char* what) {
    throw std::runtime_error(
        fmt::format("cannot {} {} GiB of address space for the candidate's buffers: {} (are there "
                    "limits? see `ulimit -v` and `ulimit -f`)",
                    what, std::end(kArenaSizes)[-1] >> 30, std::strerror(errno)));
}

}  // namespace

Arena::Arena() {
    fd_ = memfd_create("attncheck", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0) refuse("create");
    if (std::ranges::none_of(kArenaSizes, [this](std::uint64_t bytes) { return map(bytes); })) {
        close(fd_);
        refuse("map");
    }
    // A file that shrinks under the mapping would end the suite with SIGBUS.
    fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

bool Arena::map(std::uint64_t bytes) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return false;
    bytes_ = bytes;
    return mmap(reinterpret_cast<void*>(kArenaAddress), bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd_, 0) != MAP_FAILED;
}

Arena::~Arena() {
    munmap(reinterpret_cast<void*>(kArenaAddress), bytes_);
    close(fd_);
}

std::shared_ptr<Arena> Arena::shared() {
    static std::weak_ptr<Arena> last;
    std::shared_ptr<Arena> arena = last.lock();
    if (!arena) last = arena = std::make_shared<Arena>();
    return arena;
}

void Arena::watch(const void* owner, std::vector<std::uint64_t> ranges) {
    watching_ = owner;
    watched_ = std::move(ranges);
    watched_as_ = watched_hash();
}

bool Arena::was_written_late(const void* owner) {
    return std::exchange(watching_, nullptr) == owner && watched_hash() != watched_as_;
}

std::uint64_t Arena::watched_hash() const {
    std::uint64_t hash = 0;
    for (std::size_t k = 0; k < watched_.size(); k += 2)
        hash = hash_of(reinterpret_cast<const void*>(watched_[k]), watched_[k + 1], hash);
    return hash;
}

std::int64_t Arena::resident_mib() const {
    constexpr std::int64_t kBlock = 512;  // st_blocks counts these
    struct stat file {};
    return fstat(fd_, &file) == 0 ? file.st_blocks * kBlock >> 20 : 0;
}

void Arena::give_back(std::uint64_t bytes_used, std::int64_t before_mib) {
    constexpr std::uint64_t kKeep =
        64 << 20;  // pages of small cases stay: faulting them in again costs more
    if (bytes_used > kKeep)
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(kKeep),
                  static_cast<off_t>(bytes_used - kKeep));
    const std::uint64_t placed = round_up_to_page(bytes_used);
    if (resident_mib() > before_mib)  // written by the candidate, outside of its buffers
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(placed),
                  static_cast<off_t>(bytes_ - placed));
}

}  // namespace attncheck::properties
