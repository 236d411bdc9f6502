// A buffer of a call in the shared arena, between two guard pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

/// What guard pages hold: whoever opens them to read past a buffer gets NaN.
inline constexpr std::byte kGuardFill{0xFF};

inline std::byte* bytes_at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

/// Calls work with the bytes of an element as a constant: copies of known size are single
/// instructions.
template <typename Work>
void with_size(std::size_t size, const Work& work) {
    switch (size) {
        case 1:
            return work(std::integral_constant<std::size_t, 1>{});
        case 2:
            return work(std::integral_constant<std::size_t, 2>{});
        case 4:
            return work(std::integral_constant<std::size_t, 4>{});
        case 8:
            return work(std::integral_constant<std::size_t, 8>{});
        default:
            throw std::logic_error("no element has " + std::to_string(size) + " bytes");
    }
}

struct PlacedBuffer {
    struct Pages {
        std::uint64_t begin = 0, end = 0;
    };
    std::size_t call = 0, index = 0;  // index: of the tensor in its call
    const Tensor* tensor = nullptr;   // the first of its tensors; or an array
    std::string name;
    std::size_t element_size = 1;
    std::uint64_t first_page = 0, pages_end = 0;  // between the guards
    std::uint64_t begin = 0, end = 0;             // the bytes of the strided extent
    std::vector<std::int64_t>
        offsets;  // of logical elements, in elements from `begin`; dense: empty
    std::vector<Pages> pages;  // that elements touch, lowest first; what is between is a guard
    std::vector<std::byte> image;  // these pages as they were before the call, without shared bytes

    bool is_output() const { return tensor && tensor->output; }
    /// Fills in its pages. Returns the holes between them as addresses and sizes, one behind the other.
    std::vector<std::uint64_t> add_pages();
    /// The pages as they are now become the image.
    void keep_image();
    /// Moves an output's elements out of its pages and puts the poison back in their place.
    std::vector<std::uint32_t> take_elements(Poison poison) const;
    /// Whether a guard page was written: the candidate had opened it.
    bool is_guard_changed() const;
    /// The byte of its pages that changed first; nothing if none did.
    const std::byte* first_change() const;
    /// What was written that is no element of an output; empty: nothing.
    std::string damage() const;
    std::string hole_at(std::uint64_t address) const;  ///< empty: none

private:
    /// Bytes of a mask that many calls share fill all of the buffer: they are their own image.
    std::span<const std::uint8_t> shared() const;
};

}  // namespace attncheck::properties
