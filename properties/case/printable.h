// Text that a candidate or a file chose, made fit for terminals and for formats that want UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attncheck::properties {

/// The text with '?' for each byte that is no UTF-8 and for each byte of a control character:
/// C0 without line ends and tabs, DEL, and C1 (U+0080 to U+009F), which terminals obey.
std::string printable(std::string_view text);

/// A message of a report: it may be one of megabytes that quotes itself.
constexpr std::size_t kLongestMessage = 400;

/// The first line of printable(text), cut to at most `longest` bytes, the last three "..." if so.
std::string printable_line(std::string_view text, std::size_t longest);

}  // namespace attncheck::properties
