#include "impl/runtime/scratch_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>

namespace attncheck::impl {
namespace {

constexpr std::align_val_t kAlignment{64};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || \
    __has_feature(thread_sanitizer)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif
#else
constexpr bool kKeeps = true;
#endif

// The C library keeps smaller ones itself.
constexpr std::size_t kLeastKept = 32 << 10;

// Few sizes, so that blocks fit again: eight between a power of two and the next.
std::size_t capacity_for(std::size_t bytes) {
    if (bytes < kLeastKept) return bytes > 0 ? bytes : 1;
    const std::size_t step = std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
}

class KeptScratch {
public:
    ~KeptScratch() { drop(); }

    // The smallest that is not much too large; null if there is none.
    Scratch take(std::size_t capacity) {
        const std::lock_guard lock(mutex_);
        std::size_t best = count_;
        for (std::size_t i = 0; i < count_; ++i) {
            const std::size_t kept = blocks_[i].capacity;
            if (kept < capacity || kept > capacity + capacity / 4) continue;
            if (best == count_ || kept < blocks_[best].capacity) best = i;
        }
        if (best == count_) return {nullptr, 0};
        return remove(best);
    }
    // What has been kept longest makes room.
    bool keep(Scratch scratch) noexcept {
        if (scratch.capacity > kMostKeptScratch) return false;
        const std::lock_guard lock(mutex_);
        while (count_ == blocks_.size() || scratch.capacity > kMostKeptScratch - bytes_)
            ::operator delete(remove(0).memory, kAlignment);
        blocks_[count_++] = scratch;
        bytes_ += scratch.capacity;
        return true;
    }
    void drop() noexcept {
        const std::lock_guard lock(mutex_);
        while (count_ > 0) ::operator delete(remove(count_ - 1).memory, kAlignment);
    }
    std::size_t bytes() noexcept {
        const std::lock_guard lock(mutex_);
        return bytes_;
    }

private:
    Scratch remove(std::size_t index) noexcept {
        const Scratch found = blocks_[index];
        std::copy(blocks_.begin() + index + 1, blocks_.begin() + count_, blocks_.begin() + index);
        --count_;
        bytes_ -= found.capacity;
        return found;
    }

    std::mutex mutex_;
    std::array<Scratch, 256> blocks_{};  // in the order in which they came
    std::size_t count_ = 0, bytes_ = 0;
};

KeptScratch& kept() {
    static KeptScratch all;
    return all;
}

}  // namespace

Scratch take_scratch(std::size_t bytes) {
    const std::size_t capacity = capacity_for(bytes);
    if (kKeeps && capacity >= kLeastKept) {
        const Scratch found = kept().take(capacity);
        if (found.memory != nullptr) return found;
    }
    Scratch fresh{nullptr, capacity};
    try {
        fresh.memory = ::operator new(capacity, kAlignment);
    } catch (const std::bad_alloc&) {
        drop_kept_scratch();
        fresh.memory = ::operator new(capacity, kAlignment);
    }
    // As a use of what nobody wrote would find it where blocks are kept: not zero. NaN in any type.
    if (!kKeeps) std::memset(fresh.memory, 0xff, capacity);
    return fresh;
}

void give_scratch(Scratch scratch) noexcept {
    if (scratch.memory == nullptr) return;
    if (kKeeps && scratch.capacity >= kLeastKept && kept().keep(scratch)) return;
    ::operator delete(scratch.memory, kAlignment);
}

void drop_kept_scratch() noexcept { kept().drop(); }
std::size_t kept_scratch_bytes() noexcept { return kept().bytes(); }

}  // namespace attncheck::impl
