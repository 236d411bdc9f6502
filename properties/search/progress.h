// The line that a run shows while it goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include "properties/report/results.h"
#include "properties/search/clock.h"

namespace attncheck::properties {

/// Rewrites one terminal line at most ten times a second, cut to the width of the terminal.
class Progress {
public:
    Progress(std::ostream* out, const Clock& clock);
    ~Progress() { erase(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `now` is one of so many properties that the candidate has; `wanted` cases of each, 0: until the deadline, 0: none.
    void show(const PropertyReport& now, std::size_t properties, std::int64_t wanted, double deadline,
              std::int64_t cases);
    void erase();

private:
    std::ostream* out_;
    const Clock& clock_;
    double start_, last_ = 0;
};

/// The first `columns` characters, of which the last says that there were more. 0 columns: all.
std::string cut_to(const std::string& line, std::size_t columns);

}  // namespace attncheck::properties
