#include "properties/search/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>

namespace attncheck::properties {
namespace {

/// Asked each time: people change it while a run goes on. 0: not known.
std::size_t terminal_columns() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::string cut_to(const std::string& line, std::size_t columns) {
    if (columns == 0 || line.size() <= columns) return line;
    return line.substr(0, columns - 1) + ">";
}

Progress::Progress(std::ostream* out, const Clock& clock)
    : out_(out), clock_(clock), start_(clock.now()) {}

void Progress::show(const PropertyReport& now, std::size_t properties, std::int64_t wanted, double deadline,
                    std::int64_t cases) {
    const double time = clock_.now();
    if (!out_ || time - last_ < 0.1) return;
    last_ = time;
    const double rate = static_cast<double>(cases) / std::max(time - start_, 1e-9);
    std::string left;
    if (deadline > 0)
        left = fmt::format(", {:.0f} s left", std::max(0.0, deadline - time));
    else if (wanted > 0)
        left = fmt::format(
            ", about {:.0f} s left",
            std::max(0.0, static_cast<double>(wanted * static_cast<std::int64_t>(properties) - cases) /
                              std::max(rate, 1e-9)));
    const std::string line =
        fmt::format("{}.{}  {} cases, {:.0f} cases/s{}", now.op, now.property, cases, rate, left);
    const std::size_t columns = terminal_columns();  // the last one would break the line
    *out_ << "\r\x1b[K" << cut_to(line, columns > 1 ? columns - 1 : 0) << std::flush;
}

void Progress::erase() {
    if (out_) *out_ << "\r\x1b[K" << std::flush;
}

}  // namespace attncheck::properties
