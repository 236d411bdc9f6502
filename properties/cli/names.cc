#include "properties/cli/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "properties/cli/command.h"

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

std::vector<std::string> operator_names() {
    std::vector<std::string> names;
    for (const auto& op : operators()) names.push_back(op->name());
    return names;
}

std::vector<std::string> property_names() {
    std::vector<std::string> names;
    for (const auto& op : operators())
        for (const Property& property : op->properties())
            if (std::ranges::find(names, property.name) == names.end()) names.push_back(property.name);
    return names;
}

const Operator& operator_named(const std::string& name) {
    if (const Operator* const op = find_operator(name)) return *op;
    throw UsageError(unknown_name("operator", name, operator_names()));
}

Spec case_of(const std::string& line) {
    const std::size_t brace = line.find('{');
    if (const std::string name = line.substr(0, brace); brace != line.npos && !name.empty() && !find_operator(name))
        throw UsageError("case: " + unknown_name("operator", name, operator_names()));
    try {
        return parse(line, schemas());
    } catch (const std::invalid_argument& e) {
        throw UsageError(e.what());
    }
}

}  // namespace attncheck::properties
