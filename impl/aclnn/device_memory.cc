#include "impl/aclnn/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "impl/aclnn/settings.h"

namespace attncheck::aclnn {
namespace {

constexpr std::size_t kAlignment = 64;
// A vendor allocation is rounded up to 32 bytes and has 32 more that may be used.
constexpr std::size_t kGranule = 32;
constexpr std::size_t kPadding = 32;
// Freed guarded blocks whose addresses are kept out of use, so that late accesses still fault.
constexpr std::size_t kMaxQuarantine = 256;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t machine_bytes() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes();
}

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

struct Pages {
    void* start = nullptr;
    std::size_t bytes = 0;
};

void set_access(const Pages& pages, bool open) {
    if (mprotect(pages.start, pages.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
    // Only the kernel's limit on the number of mappings can be the reason.
    std::perror("ATTNCHECK_ACL_DEBUG: mprotect of a device block");
    std::abort();
}

void quarantine(const Pages& pages) {
    static auto& mutex = *new std::mutex;
    static auto& waiting = *new std::deque<Pages>;
    // A fresh mapping over the old one gives the memory back and keeps the addresses.
    mmap(pages.start, pages.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    const std::lock_guard lock(mutex);
    waiting.push_back(pages);
    if (waiting.size() <= kMaxQuarantine) return;
    munmap(waiting.front().start, waiting.front().bytes);
    waiting.pop_front();
}

}  // namespace

/// Memory of one allocation; freed with the last copy that still uses it.
struct Block {
    Block(Side on_side, std::size_t usable) : side(on_side), usable_bytes(usable) {}
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
        if (guarded())
            quarantine(
                {static_cast<char*>(inner.start) - page_bytes(), inner.bytes + 2 * page_bytes()});
        else
            std::free(start);
    }

    bool guarded() const { return inner.start != nullptr; }

    Side side;
    std::size_t usable_bytes;
    char* start = nullptr;
    Pages inner;       ///< of a guarded block: its pages, between one closed page on either side
    int openings = 0;  ///< copies under way; under the registry's mutex
};

namespace {

/// The data end at the last multiple of 64 before the closed page that follows.
bool map_guarded(Block& block) {
    const std::size_t data_bytes = rounded_up(block.usable_bytes, kAlignment);
    const std::size_t inner_bytes = rounded_up(data_bytes, page_bytes());
    void* outer = mmap(nullptr, inner_bytes + 2 * page_bytes(), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (outer == MAP_FAILED) return false;
    block.inner = {static_cast<char*>(outer) + page_bytes(), inner_bytes};
    block.start = static_cast<char*>(block.inner.start) + inner_bytes - data_bytes;
    set_access(block.inner, true);
    std::memset(block.inner.start, 0xFF, inner_bytes);
    return true;
}

class Registry {
public:
    void* allocate(std::size_t bytes, Side side) {
        if (bytes > machine_bytes()) return nullptr;
        auto block = std::make_shared<Block>(
            side, side == Side::kDevice ? rounded_up(bytes, kGranule) + kPadding : bytes);
        const bool guarded = side == Side::kDevice && guarded_memory();
        const std::lock_guard lock(mutex_);
        if (live_bytes_ + block->usable_bytes > machine_bytes()) return nullptr;
        if (guarded) {
            if (!map_guarded(*block)) return nullptr;
            if (kernels_ == 0) set_access(block->inner, false);
        } else {
            block->start = static_cast<char*>(
                std::aligned_alloc(kAlignment, rounded_up(block->usable_bytes, kAlignment)));
            if (!block->start) return nullptr;
        }
        live_bytes_ += block->usable_bytes;
        void* start = block->start;
        blocks_.emplace(reinterpret_cast<std::uintptr_t>(start), std::move(block));
        return start;
    }

    bool release(void* address, Side side) {
        std::shared_ptr<Block> released;  // destroyed after the lock is given up
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
        if (found == blocks_.end() || found->second->side != side) return false;
        live_bytes_ -= found->second->usable_bytes;
        released = std::move(found->second);
        blocks_.erase(found);
        return true;
    }

    void release_all(Side side) {
        const std::lock_guard lock(mutex_);
        std::erase_if(blocks_, [&](const auto& entry) {
            if (entry.second->side != side) return false;
            live_bytes_ -= entry.second->usable_bytes;
            return true;
        });
    }

    void open_for_kernel() {
        const std::lock_guard lock(mutex_);
        if (kernels_++ == 0) set_access_of_idle_blocks(true);
    }

    void close_after_kernel() {
        const std::lock_guard lock(mutex_);
        if (--kernels_ == 0) set_access_of_idle_blocks(false);
    }

    /// The block that `address` lies in, opened for a copy, and the bytes from there to its end.
    std::shared_ptr<Block> open_for_copy(const void* address, std::size_t& bytes_to_end) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Block> block = containing(address, bytes_to_end);
        if (block && block->openings++ == 0 && kernels_ == 0 && block->guarded())
            set_access(block->inner, true);
        return block;
    }

    void close_after_copy(Block& block) {
        const std::lock_guard lock(mutex_);
        if (--block.openings == 0 && kernels_ == 0 && block.guarded())
            set_access(block.inner, false);
    }

    std::optional<std::size_t> bytes_to_end(const void* address, Side side) {
        const std::lock_guard lock(mutex_);
        std::size_t bytes = 0;
        const std::shared_ptr<Block> block = containing(address, bytes);
        return block && block->side == side ? std::optional(bytes) : std::nullopt;
    }

private:
    std::shared_ptr<Block> containing(const void* address, std::size_t& bytes_to_end) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        auto next = blocks_.upper_bound(at);
        if (next == blocks_.begin()) return nullptr;
        const auto& [start, block] = *--next;
        if (at - start >= block->usable_bytes) return nullptr;
        bytes_to_end = block->usable_bytes - (at - start);
        return block;
    }

    void set_access_of_idle_blocks(bool open) {
        for (const auto& [start, block] : blocks_)
            if (block->guarded() && block->openings == 0) set_access(block->inner, open);
    }

    std::mutex mutex_;
    std::map<std::uintptr_t, std::shared_ptr<Block>> blocks_;
    std::size_t live_bytes_ = 0;
    int kernels_ = 0;  ///< kernels under way, for which every block is open
};

/// Never destroyed: work may still run while the program ends.
Registry& registry() {
    static auto& only = *new Registry;
    return only;
}

}  // namespace

void* allocate_block(std::size_t bytes, Side side) { return registry().allocate(bytes, side); }

bool release_block(void* address, Side side) { return registry().release(address, side); }

void release_device_blocks() { registry().release_all(Side::kDevice); }

DeviceMemoryOpening::DeviceMemoryOpening() { registry().open_for_kernel(); }

DeviceMemoryOpening::~DeviceMemoryOpening() { registry().close_after_kernel(); }

Placement device_placement(const void* address, std::size_t bytes) {
    const auto bytes_to_end = registry().bytes_to_end(address, Side::kDevice);
    if (!bytes_to_end) return Placement::kElsewhere;
    return bytes <= *bytes_to_end ? Placement::kInside : Placement::kPastTheEnd;
}

CopyEnd::CopyEnd(const void* address, std::size_t bytes) {
    std::size_t bytes_to_end = 0;
    block_ = registry().open_for_copy(address, bytes_to_end);
    leaves_block_ = block_ && bytes > bytes_to_end;
}

CopyEnd::~CopyEnd() {
    if (block_) registry().close_after_copy(*block_);
}

bool CopyEnd::in_block() const { return block_ != nullptr; }

bool CopyEnd::on_device() const { return block_ && block_->side == Side::kDevice; }

bool CopyEnd::leaves_block() const { return leaves_block_; }

}  // namespace attncheck::aclnn
