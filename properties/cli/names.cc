#include "properties/cli/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
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

CLI::Validator one_of(std::vector<std::string> values) {
    const std::string shown = fmt::format("{{{}}}", fmt::join(values, ","));
    return {[values = std::move(values)](std::string& text) {
                if (std::ranges::find(values, text) != values.end()) return std::string();
                const std::string meant = resembling(text, values);
                return fmt::format("is '{}', allowed: {}{}", text, fmt::join(values, ", "),
                                   meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
            },
            shown};
}

std::string misspelt_word(CLI::App& app, int argc, char** argv) {
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    const CLI::App* chosen = &app;
    for (int k = 1; k < argc; ++k) {
        const std::string word = argv[k];
        if (chosen == &app && !word.starts_with('-')) {
            if (std::ranges::find(commands, word) == commands.end()) {
                const std::string meant = resembling(word, commands);
                return meant.empty() ? fmt::format("no command '{}', known: {}", word, fmt::join(commands, " "))
                                     : fmt::format("no command '{}', did you mean '{}'?", word, meant);
            }
            chosen = app.get_subcommand(word);
        }
        if (!word.starts_with("--")) continue;
        std::vector<std::string> options;
        for (const CLI::Option* option : chosen->get_options())
            for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
        const std::string name = word.substr(0, word.find('='));
        if (name.size() == 2 || std::ranges::find(options, name) != options.end()) continue;
        if (const std::string meant = resembling(name, options); !meant.empty())
            return fmt::format("no option '{}', did you mean '{}'?", name, meant);
    }
    return {};
}

}  // namespace attncheck::properties
