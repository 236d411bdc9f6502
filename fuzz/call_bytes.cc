#include "fuzz/call_bytes.h"

#include <algorithm>
#include <limits>

#include "fuzz/bytes.h"

namespace attncheck::fuzz {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// 2^0..2^63, half of the time one where a type ends, and up to three more or less, in the
/// arithmetic of 64 bits.
std::int64_t near_power_of_two(std::uint8_t choice, std::uint64_t offset) {
    constexpr int kEnds[] = {31, 32, 63};
    const int exponent = choice < 128 ? choice & 63 : kEnds[choice % 3];
    return static_cast<std::int64_t>((std::uint64_t{1} << exponent) + offset % 7 - 3);
}

}  // namespace

std::int64_t Change::value(std::int64_t before, std::span<const std::int64_t> limits) const {
    const std::int64_t signed_argument = static_cast<std::int8_t>(argument);
    if (kind % 2 == 1 && !limits.empty()) return limits[argument % limits.size()];
    switch (kind / 2 % 7) {
        case 0:
            return std::clamp(before, -kMax / 2, kMax / 2) + signed_argument % 17;
        case 1:
            return std::clamp(before, -kMax / 128, kMax / 128) * signed_argument;
        case 2:
            return 16 * signed_argument;
        case 3:
            return signed_argument < 0 ? -kMax - (signed_argument + 2) : kMax - signed_argument;
        case 4:
            return near_power_of_two(argument, number);
        case 5:
            return kMax / (16 * (1 + argument)) + (argument & 1);
        default:
            return static_cast<std::int64_t>(number);
    }
}

CallBytes CallBytes::parse(const std::uint8_t* data, std::size_t size, std::size_t max_changes) {
    Bytes bytes{data, data + size};
    CallBytes call;
    const std::size_t rest = size == 0 ? 0 : size - 1;
    call.head.resize(std::min<std::size_t>(bytes.byte(), rest));
    for (std::uint8_t& byte : call.head) byte = bytes.byte();
    while (!bytes.empty() && call.changes.size() < max_changes) {
        Change& change = call.changes.emplace_back();
        change.what = bytes.byte(), change.which = bytes.byte();
        change.kind = bytes.byte(), change.argument = bytes.byte();
        for (int i = 0; i < 8; ++i) change.number |= std::uint64_t{bytes.byte()} << (8 * i);
    }
    return call;
}

std::vector<std::uint8_t> CallBytes::bytes() const {
    const std::size_t head_size = std::min(head.size(), kMaxHead);
    std::vector<std::uint8_t> out;
    out.reserve(1 + head_size + changes.size() * kBytesOfChange);
    out.push_back(static_cast<std::uint8_t>(head_size));
    for (std::size_t i = 0; i < head_size; ++i) out.push_back(head[i]);
    for (const Change& change : changes) {
        for (const std::uint8_t byte : {change.what, change.which, change.kind, change.argument})
            out.push_back(byte);
        for (int i = 0; i < 8; ++i)
            out.push_back(static_cast<std::uint8_t>(change.number >> (8 * i)));
    }
    return out;
}

}  // namespace attncheck::fuzz
