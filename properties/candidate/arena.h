// The memory that the suite shares with its workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "properties/candidate/protocol.h"

namespace attncheck::properties {

/// A memfd mapped at kArenaAddress, shared with worker processes. Workers read its size from the file.
class Arena {
public:
    Arena();  ///< throws std::runtime_error when the system refuses
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    /// The arena of this process, as long as somebody holds it: candidates of one suite take turns.
    static std::shared_ptr<Arena> shared();
    int descriptor() const { return fd_; }
    std::uint64_t bytes() const { return bytes_; }
    std::int64_t resident_mib() const;  ///< pages that exist, whoever made them
    /// Returns pages to the system after a large case, and those that were not there before the
    /// call, when the arena had `before_mib`.
    void give_back(std::uint64_t bytes_used, std::int64_t before_mib);

    /// Remembers what lies in ranges {address, bytes} that calls of `owner` wrote to.
    void watch(const void* owner, std::vector<std::uint64_t> ranges);
    /// Whether that changed since `owner` said so, which is forgotten.
    bool was_written_late(const void* owner);

private:
    bool map(std::uint64_t bytes);
    std::uint64_t watched_hash() const;

    int fd_ = -1;
    std::uint64_t bytes_ = 0;
    const void* watching_ = nullptr;
    std::vector<std::uint64_t> watched_;
    std::uint64_t watched_as_ = 0;
};

}  // namespace attncheck::properties
