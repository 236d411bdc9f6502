// Numbers in texts: one that a whole text is, and a number of things.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace attncheck::properties {

/// nullopt: the text is something else, or more than the number.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// "1 case", "3 cases", "2 processes".
inline std::string counted(std::integral auto count, std::string_view thing) {
    std::string text = std::to_string(count) + ' ' + std::string(thing);
    if (count != 1) text += thing.ends_with('s') ? "es" : "s";
    return text;
}

}  // namespace attncheck::properties
