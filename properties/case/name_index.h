// Where the names of a list stand. Every question about a case asks for fields by name, and some ask it for every element.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attncheck::properties {

/// A hash table of positions; the names stay in their list, which does not change once it is indexed.
class NameIndex {
public:
    NameIndex() = default;
    template <class Items, class Name>
    NameIndex(const Items& items, Name member) : slots_(std::bit_ceil(2 * items.size() + 1), kFree) {
        for (std::size_t i = 0; i < items.size(); ++i) {
            std::size_t slot = hash(items[i].*member) & (slots_.size() - 1);
            while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
            slots_[slot] = static_cast<std::int16_t>(i);
        }
    }

    bool empty() const { return slots_.empty(); }

    /// Of the first item with this name; -1 if there is none.
    template <class Items, class Name>
    int find(const Items& items, std::string_view name, Name member) const {
        std::size_t slot = hash(name) & (slots_.size() - 1);
        for (; slots_[slot] != kFree; slot = (slot + 1) & (slots_.size() - 1))
            if (items[static_cast<std::size_t>(slots_[slot])].*member == name) return slots_[slot];
        return -1;
    }

private:
    static constexpr std::int16_t kFree = -1;
    /// FNV-1a.
    static std::size_t hash(std::string_view name) {
        std::uint32_t state = 2166136261u;
        for (const char letter : name) state = (state ^ static_cast<unsigned char>(letter)) * 16777619u;
        return state;
    }

    std::vector<std::int16_t> slots_;
};

}  // namespace attncheck::properties
