#include "properties/report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ios>
#include <ostream>
#include <sstream>

namespace attncheck::properties {
namespace {

constexpr int kWidest = 80;

int columns_place() {
    static const int place = std::ios_base::xalloc();
    return place;
}
int colour_place() {
    static const int place = std::ios_base::xalloc();
    return place;
}

bool is_set(const char* variable) {
    const char* const value = std::getenv(variable);
    return value && *value;
}

}  // namespace

void set_terminal(std::ostream& out, int columns, bool has_colour) {
    out.iword(columns_place()) = columns;
    out.iword(colour_place()) = has_colour;
}

void prepare_terminal(std::ostream& out, int descriptor) {
    if (!isatty(descriptor)) return;
    winsize size{};
    const int columns =
        ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kWidest;
    const char* const kind = std::getenv("TERM");
    const bool is_dumb = !kind || std::string_view(kind) == "dumb";
    set_terminal(out, std::clamp(columns, 40, kWidest), !is_dumb && !is_set("NO_COLOR"));
}

std::string shaded(std::ostream& out, Shade shade, const std::string& text) {
    if (out.iword(colour_place()) == 0) return text;
    const char* const code = shade == Shade::good     ? "\x1b[32m"
                             : shade == Shade::bad    ? "\x1b[1;31m"
                             : shade == Shade::strong ? "\x1b[1m"
                                                      : "\x1b[2m";
    return code + text + "\x1b[0m";
}

std::string broken_line(std::string line, std::size_t columns, std::size_t indent) {
    std::string whole;
    std::size_t from = line.find_first_not_of(' ');
    while (line.size() > columns) {
        std::size_t at = line.rfind(' ', columns);
        if (at == std::string::npos || at <= from) at = line.find(' ', std::max(columns, from));
        if (at == std::string::npos) break;
        whole += line.substr(0, line.find_last_not_of(' ', at) + 1) + "\n";
        line = std::string(indent, ' ') + line.substr(std::min(line.find_first_not_of(' ', at), line.size()));
        from = indent;
    }
    return whole + line;
}

std::string fitted(std::ostream& out, const std::string& text, std::size_t indent) {
    const auto columns = static_cast<std::size_t>(out.iword(columns_place()));
    if (columns == 0) return text;
    std::istringstream lines(text);
    std::string whole;
    bool is_first = true;
    for (std::string line; std::getline(lines, line); is_first = false) {
        if (!is_first) whole += "\n";
        if (line.size() <= columns || line.starts_with("    ")) {
            whole += line;
            continue;
        }
        whole += broken_line(line, columns, indent);
    }
    return text.ends_with('\n') ? whole + "\n" : whole;
}

}  // namespace attncheck::properties
