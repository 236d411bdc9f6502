#include "properties/cli/option_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "properties/cli/names.h"

namespace attncheck::properties {

CLI::Validator seconds_between(double low, double high) {
    return {[low, high](std::string& text) {
                double value = 0;
                if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high)
                    return std::string();
                return fmt::format("is '{}', allowed: {:g} to {:g} seconds", text, low, high);
            },
            fmt::format("SECONDS in [{:g} - {:g}]", low, high)};
}

CLI::Validator seed_number() {
    return {[](std::string& text) {
                std::uint64_t value = 0;
                const char* const end = text.data() + text.size();
                const auto read = std::from_chars(text.data(), end, value);
                if (read.ec == std::errc{} && read.ptr == end) return std::string();
                return fmt::format("is '{}', allowed: whole numbers from 0 to 2^64 - 1", text);
            },
            ""};
}

void refuse_empty_values(CLI::App& app) {
    const auto not_empty = [](const char* message) {
        return CLI::Validator([message](std::string& text) { return std::string(text.empty() ? message : ""); }, "");
    };
    for (CLI::App* command : app.get_subcommands({}))
        for (CLI::Option* option : command->get_options())
            option->check(not_empty(option->get_required() ? "is empty" : "is empty; leave the option out to get its default"));
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
        return fmt::format("no option '{}', see: attncheck {}--help", name,
                           chosen == &app ? "" : chosen->get_name() + " ");
    }
    return {};
}

std::string help_of(const CLI::App& app) {
    const auto chosen = app.get_subcommands();
    return fmt::format("attncheck {}--help", chosen.empty() ? "" : chosen.front()->get_name() + " ");
}

}  // namespace attncheck::properties
