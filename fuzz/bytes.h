// Reads the input of a fuzz target; beyond the end every byte is 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

/// A cursor over the input.
struct Bytes {
    const std::uint8_t *next, *end;

    std::uint8_t byte() { return next == end ? 0 : *next++; }
    /// Near the value before, near a legal value, at the ends of int64, or anything.
    std::int64_t value(std::int64_t before) {
        constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
        const std::int64_t kind = byte() % 6, argument = static_cast<std::int8_t>(byte());
        if (kind == 0) return std::clamp(before, -kMax / 2, kMax / 2) + argument % 17;
        if (kind == 1) return std::clamp(before, -kMax / 128, kMax / 128) * argument;
        if (kind == 2) return 16 * argument;
        if (kind == 3) return argument < 0 ? -kMax - (argument + 2) : kMax - argument;
        if (kind == 4) return kMax / (16 * (1 + (argument & 0xff))) + (argument & 1);
        std::uint64_t any = 0;
        for (int i = 0; i < 8; ++i) any = any << 8 | byte();
        return static_cast<std::int64_t>(any);
    }
};
