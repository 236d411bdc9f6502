// What a stream can show: columns and colours of a terminal, or plain text.
#pragma once

#include <iosfwd>
#include <string>

namespace attncheck::properties {

/// Asks the system about standard output: no colour unless it is a terminal, TERM is not "dumb" and
/// NO_COLOR (no-color.org) is empty. Lines are broken on a terminal only, at 80 columns at most: a
/// file keeps each line whole, for those who search it.
void prepare_terminal(std::ostream& out, int descriptor);

/// The same without asking. 0 columns: lines are not broken.
void set_terminal(std::ostream& out, int columns, bool has_colour);

enum class Shade { good, bad, strong, faint };
/// `text`, in colour where the stream has some.
std::string shaded(std::ostream& out, Shade shade, const std::string& text);

/// A line of at most so many columns where it has blanks to break at; what follows is indented. Blanks that align
/// columns stay, and a word that is longer than a line is not broken.
std::string broken_line(std::string line, std::size_t columns, std::size_t indent);

/// Breaks the lines so that they fit the stream. Lines that begin with "    ", as tables do, stay as they are.
std::string fitted(std::ostream& out, const std::string& text, std::size_t indent);

}  // namespace attncheck::properties
