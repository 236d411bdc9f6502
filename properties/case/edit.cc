#include "properties/case/edit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "properties/case/number_text.h"

namespace attncheck::properties {
namespace {

[[noreturn]] void refuse_text(std::string_view edit, std::string_view why) {
    throw std::invalid_argument(fmt::format("case: break entry '{}' {}", edit, why));
}

std::string print_real(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    std::string text = fmt::format("{}", value);  // shortest round trip, 1e300 without its '+'
    std::erase(text, '+');
    return text;
}

void read_value(std::string_view edit, std::string_view text, Edit& out) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        out.value = std::string(text.substr(1, text.size() - 2));
        return;
    }
    if (text == "nan")
        out.value = std::numeric_limits<double>::quiet_NaN();
    else if (text == "inf")
        out.value = std::numeric_limits<double>::infinity();
    else if (text == "-inf")
        out.value = -std::numeric_limits<double>::infinity();
    else if (const auto whole = number_in<std::int64_t>(text); whole && text != "-0")
        out.value = *whole;
    else if (const auto real = number_in<double>(text)) {
        const std::string shortest = print_real(*real);
        if (const auto same = number_in<std::int64_t>(shortest); same && shortest != "-0")
            out.value = *same;
        else
            out.value = *real;
    } else {
        refuse_text(edit, "needs a number, nan, inf, -inf or a text in double quotes behind '='");
    }
}

/// "shape[2,1]" -> the name in front of the bracket, and the numbers in it.
std::string_view read_index(std::string_view edit, std::string_view name, Edit& out) {
    const auto open = name.find('[');
    if (open == std::string_view::npos) return name;
    if (name.back() != ']') refuse_text(edit, "has an open bracket");
    std::string_view inside = name.substr(open + 1, name.size() - open - 2);
    for (bool more = true; more;) {
        const auto comma = inside.find(',');
        more = comma != std::string_view::npos;
        const auto number = number_in<std::int64_t>(inside.substr(0, comma));
        if (!number || *number < 0) refuse_text(edit, "has an index that is no whole number >= 0");
        out.index.push_back(*number);
        if (more) inside.remove_prefix(comma + 1);
    }
    return name.substr(0, open);
}

}  // namespace

Edit::Edit(std::string_view text) {
    const auto equals = text.find('=');
    std::string_view left = text.substr(0, equals);
    if (equals != std::string_view::npos) read_value(text, text.substr(equals + 1), *this);
    const auto dot = left.find('.');
    if (dot != std::string_view::npos) {
        attribute = read_index(text, left.substr(dot + 1), *this);
        left = left.substr(0, dot);
        if (left.find('[') != std::string_view::npos || attribute.empty())
            refuse_text(text, "is not of the form NAME.ATTRIBUTE");
    } else {
        left = read_index(text, left, *this);
    }
    name = left;
    const auto is_word = [](std::string_view word) {
        return std::all_of(word.begin(), word.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '_';
        });
    };
    if (name.empty() || !is_word(name) || !is_word(attribute))
        refuse_text(text, "is not of the form NAME.ATTRIBUTE[INDEX]=VALUE");
}

std::int64_t Edit::integer() const {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
    refuse(*this, "needs a whole number behind '='");
}

double Edit::real() const {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
    if (const auto* number = std::get_if<double>(&value)) return *number;
    refuse(*this, "needs a number, nan, inf or -inf behind '='");
}

std::string print(const Edit& edit) {
    std::string out = edit.name;
    if (!edit.attribute.empty()) out += '.' + edit.attribute;
    if (!edit.index.empty()) out += fmt::format("[{}]", fmt::join(edit.index, ","));
    if (const auto* number = std::get_if<std::int64_t>(&edit.value))
        out += fmt::format("={}", *number);
    else if (const auto* real = std::get_if<double>(&edit.value))
        out += '=' + print_real(*real);
    else if (const auto* text = std::get_if<std::string>(&edit.value))
        out += fmt::format("=\"{}\"", *text);
    return out;
}

void refuse(const Edit& edit, std::string_view why) { refuse_text(print(edit), why); }

}  // namespace attncheck::properties
