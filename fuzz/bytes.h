// Reads the input of a fuzz target; beyond the end every byte is 0.
#pragma once

#include <cstdint>

namespace attncheck::fuzz {

/// A cursor over the input.
struct Bytes {
    const std::uint8_t *next, *end;

    bool empty() const { return next == end; }
    std::uint8_t byte() { return next == end ? 0 : *next++; }
};

}  // namespace attncheck::fuzz
