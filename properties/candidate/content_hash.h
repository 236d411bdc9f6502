// A fast hash of memory that tells whether anything was written between two looks. Not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace attncheck::properties {

/// Each step is a bijection of the state for a given word, and of the word for a given state: one
/// changed word always shows.
inline std::uint64_t hash_of(const void* data, std::size_t bytes, std::uint64_t state) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
    const auto* at = static_cast<const unsigned char*>(data);
    const auto step = [](std::uint64_t before, std::uint64_t word) {
        const std::uint64_t mixed = (before ^ word) * kOdd;
        return mixed ^ (mixed >> 29);
    };
    // Four chains at once: one alone waits for its multiplication.
    std::uint64_t lanes[4] = {state, state + 1, state + 2, state + 3};
    for (; bytes >= sizeof lanes; at += sizeof lanes, bytes -= sizeof lanes) {
        std::uint64_t words[4];
        std::memcpy(words, at, sizeof words);
        for (int k = 0; k < 4; ++k) lanes[k] = step(lanes[k], words[k]);
    }
    for (const std::uint64_t lane : lanes) state = step(state, lane);
    for (; bytes > 0; ++at, --bytes) state = step(state, *at);
    return state;
}

}  // namespace attncheck::properties
