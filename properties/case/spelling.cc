#include "properties/case/spelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace attncheck::properties {

int edit_distance(const std::string& a, const std::string& b) {
    std::vector<int> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < a.size(); ++i) {
        int diagonal = std::exchange(row[0], row[0] + 1);
        for (std::size_t j = 0; j < b.size(); ++j)
            diagonal = std::exchange(
                row[j + 1], std::min({diagonal + (a[i] != b[j]), row[j + 1] + 1, row[j] + 1}));
    }
    return row.back();
}

std::string resembling(const std::string& name, const std::vector<std::string>& known) {
    if (known.empty() || name.empty()) return {};
    const auto distance = [&](const std::string& one) { return edit_distance(name, one); };
    const auto nearest = std::ranges::min_element(known, {}, distance);
    if (5 * distance(*nearest) <= 2 * static_cast<int>(name.size())) return *nearest;
    constexpr std::size_t kEnough = 3;  // letters, of a name that was cut off
    const auto longer = std::ranges::find_if(
        known, [&](const std::string& one) { return name.size() >= kEnough && one.starts_with(name); });
    return longer == known.end() ? "" : *longer;
}

std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& known) {
    const std::string meant = resembling(name, known);
    return meant.empty() ? fmt::format("unknown {} '{}', known: {}", kind, name, fmt::join(known, " "))
                         : fmt::format("unknown {} '{}', did you mean '{}'?", kind, name, meant);
}

}  // namespace attncheck::properties
