// The bytes of a call with perhaps illegal arguments, in one format for all operators, so that
// mutation and cross-over work on parts that mean something:
//
//   head      1 byte, its size (cut to what follows), then that many bytes: they choose a legal call,
//             and every value of every byte has a meaning
//   changes   12 bytes each: what is changed, which one of them, how the new value is made, its
//             argument, and 8 bytes (little-endian) of a number
//
// Every string of bytes is such a call, and bytes() gives the string back for one it made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace attncheck::fuzz {

/// One change of a legal call; the operator says what its parts stand for.
struct Change {
    std::uint8_t what = 0, which = 0, kind = 0, argument = 0;
    std::uint64_t number = 0;
    bool operator==(const Change&) const = default;

    /// A new value in place of `before`: a limit of the contract or, beside `before`, a multiple of
    /// it, a multiple of 16, at an end of int64, near a power of two (2^31, 2^32, 2^63 included),
    /// near an even share of 2^63, or anything.
    std::int64_t value(std::int64_t before, std::span<const std::int64_t> limits) const;
};

struct CallBytes {
    static constexpr std::size_t kMaxHead = 255, kBytesOfChange = 12;
    static constexpr std::size_t kMaxChanges = 6;  ///< of the calls; programs of steps have more
    std::vector<std::uint8_t> head;
    std::vector<Change> changes;
    bool operator==(const CallBytes&) const = default;

    static CallBytes parse(const std::uint8_t* data, std::size_t size,
                           std::size_t max_changes = kMaxChanges);
    std::vector<std::uint8_t> bytes() const;
};

}  // namespace attncheck::fuzz
