#include "properties/case/printable.h"

#include <cstdint>

namespace attncheck::properties {
namespace {

bool continues(char ch) { return (static_cast<unsigned char>(ch) & 0xC0) == 0x80; }

/// Bytes of the character at the front, 0 when it is no UTF-8 (Unicode 15, table 3-7).
std::size_t bytes_of_first(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t bytes = lead < 0x80                   ? 1
                              : lead >= 0xC2 && lead < 0xE0 ? 2
                              : lead >= 0xE0 && lead < 0xF0 ? 3
                              : lead >= 0xF0 && lead < 0xF5 ? 4
                                                            : 0;
    if (bytes > text.size()) return 0;
    for (std::size_t k = 1; k < bytes; ++k)
        if (!continues(text[k])) return 0;
    if (bytes < 3) return bytes;
    const auto second = static_cast<unsigned char>(text[1]);
    const bool is_overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool is_surrogate = lead == 0xED && second >= 0xA0;
    const bool is_beyond = lead == 0xF4 && second >= 0x90;
    return is_overlong || is_surrogate || is_beyond ? 0 : bytes;
}

/// Also what makes a terminal show text in another order or as another line: UAX #9, table 1, and
/// U+2028, U+2029 and U+FEFF.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    const auto second = static_cast<unsigned char>(character[1]);
    if (character.size() == 2) return (first == 0xC2 && second < 0xA0) || character == "\u061C";
    const auto third = static_cast<unsigned char>(character[2]);
    if (first != 0xE2) return character == "\uFEFF";
    return (second == 0x80 && ((third >= 0x8E && third <= 0x8F) || (third >= 0xA8 && third <= 0xAE))) ||
           (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t bytes = bytes_of_first(text);
        if (bytes == 0) {
            out += '?';
            text.remove_prefix(1);
            continue;
        }
        if (is_control(text.substr(0, bytes)))
            out.append(bytes, '?');
        else
            out += text.substr(0, bytes);
        text.remove_prefix(bytes);
    }
    return out;
}

std::string printable_line(std::string_view text, std::size_t longest) {
    std::string line = printable(text.substr(0, text.find('\n')));
    if (line.size() <= longest) return line;
    std::size_t kept = longest - 3;
    while (kept > 0 && continues(line[kept])) --kept;
    return line.substr(0, kept) + "...";
}

}  // namespace attncheck::properties
