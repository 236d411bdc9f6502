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

/// Breaks lines at blanks so that they fit the stream; what follows is indented by `indent` blanks.
/// A word without blanks stays whole. Lines that begin with "    ", as tables do, stay as they are.
std::string fitted(std::ostream& out, const std::string& text, std::size_t indent);

}  // namespace attncheck::properties
