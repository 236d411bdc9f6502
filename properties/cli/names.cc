#include "properties/cli/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "properties/cli/command.h"

namespace attncheck::properties {

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

Spec case_of(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t");  // as reports indent it
    const std::string line = first == text.npos ? text : text.substr(first);
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
