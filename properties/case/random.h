// Random numbers for cases and values: splitmix64 (Steele, Lea and Flood 2014), as a stream and as
// a hash.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace attncheck::properties {

inline std::uint64_t mix(std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ull); }
    std::int64_t between(std::int64_t low, std::int64_t high) {  ///< both ends included
        return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(int percent) { return between(0, 99) < percent; }
    template <class T>
    T pick(std::initializer_list<T> items) {
        return items.begin()[between(0, std::ssize(items) - 1)];
    }
    template <class T>
    const T& pick(const std::vector<T>& items) {
        return items[between(0, std::ssize(items) - 1)];
    }

private:
    std::uint64_t state_;
};

}  // namespace attncheck::properties
