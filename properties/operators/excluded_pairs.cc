#include "properties/operators/excluded_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "properties/case/embedded_tables.h"

namespace attncheck::properties {
namespace {

/// The rows of a table; they point into `text`. Throws std::invalid_argument on a line of another form.
std::vector<ExcludedPairs> read_excluded_pairs(std::string_view text) {
    constexpr std::string_view kBar = " | ";
    std::vector<ExcludedPairs> rows;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.empty() || line.front() == '#') continue;
        const auto first = line.find(kBar);
        const auto second = first == line.npos ? first : line.find(kBar, first + kBar.size());
        if (second == line.npos)
            throw std::invalid_argument(
                fmt::format("excluded pairs: \"{}\", expected OPERATOR | CLASS | CLASS...", line));
        const auto one = first + kBar.size();
        rows.push_back({line.substr(0, first), line.substr(one, second - one),
                        line.substr(second + kBar.size())});
    }
    return rows;
}

}  // namespace

std::vector<ExcludedPairs> excluded_pairs_of(std::string_view op) {
    std::vector<ExcludedPairs> rows;
    for (const EmbeddedTable& table : embedded_tables()) {
        if (table.file != "excluded_pairs.txt") continue;
        for (const ExcludedPairs& row : read_excluded_pairs(table.text))
            if (row.op == op) rows.push_back(row);
    }
    return rows;
}

}  // namespace attncheck::properties
