// The replaceable forms that all the others (arrays, nothrow, sized) are defined by.
#include "bench/allocation_count.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> allocated{0}, highest{0}, base{0};

void* counted(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
    const std::int64_t now = allocated.fetch_add(bytes) + bytes;
    std::int64_t most = highest.load();
    while (now > most && !highest.compare_exchange_weak(most, now)) {
    }
    return memory;
}

void release(void* memory) {
    if (memory == nullptr) return;
    allocated.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(memory)));
    std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
    return counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    return counted(
        std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace attncheck::bench {

void restart_allocation_count() {
    base = allocated.load();
    highest = base.load();
}

std::int64_t peak_allocated_bytes() { return highest - base; }

}  // namespace attncheck::bench
