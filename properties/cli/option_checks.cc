#include "properties/cli/option_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>

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
    const CLI::Validator not_empty(
        [](std::string& text) {
            return text.empty() ? std::string("is empty; leave the option out to get its default")
                                : std::string();
        },
        "");
    for (CLI::App* command : app.get_subcommands({}))
        for (CLI::Option* option : command->get_options()) option->check(not_empty);
}

}  // namespace attncheck::properties
