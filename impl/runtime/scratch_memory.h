#ifndef ATTNCHECK_IMPL_SCRATCH_MEMORY_H
#define ATTNCHECK_IMPL_SCRATCH_MEMORY_H

#include <cstddef>

/// Memory of AlignedBuffer. What one call gives back is kept for the next, up to kMostKeptScratch:
/// the C library would return it to the system and get it again page by page, which takes up to a
/// third of a call (of the dense gradient of 1024 queries on a virtual machine).
///
/// Any thread may call. Where a sanitizer watches memory nothing is kept, so that it sees every use
/// of what was given back, and what is taken is NaN, so that tests see every use of what nobody
/// wrote.
namespace attncheck::impl {

inline constexpr std::size_t kMostKeptScratch = std::size_t{256} << 20;

/// Of `capacity` bytes, at least as many as were asked for; contents are anything.
struct Scratch {
    void* memory;
    std::size_t capacity;
};

/// Aligned to 64 bytes. Throws std::bad_alloc.
Scratch take_scratch(std::size_t bytes);
void give_scratch(Scratch scratch) noexcept;

/// Gives everything that is kept back to the system.
void drop_kept_scratch() noexcept;
std::size_t kept_scratch_bytes() noexcept;

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SCRATCH_MEMORY_H
