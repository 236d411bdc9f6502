#include "properties/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>

#include "properties/report/exit_status.h"
#include "properties/report/terminal.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kWidestHelp = 80;
constexpr std::size_t kTextColumn = 30;  ///< where the library puts the texts of options
constexpr std::size_t kStatusColumn = 7;

class ShortLines : public CLI::Formatter {
public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        std::istringstream lines(CLI::Formatter::make_help(app, std::move(name), mode));
        std::string out;
        for (std::string line; std::getline(lines, line);) {
            const bool is_status = line.size() > 5 && line.starts_with("  ") && line[2] >= '0' && line[2] <= '9';
            out += broken_line(line, kWidestHelp, is_status ? kStatusColumn : line.starts_with(' ') ? kTextColumn : 0) + "\n";
        }
        return out;
    }
};

constexpr const char* kVerify = "verify";  ///< whose example the program has

struct Example {
    std::string_view command, line;
};

constexpr Example kExamples[] = {
    {"list", "list --candidate ./libmykernel.so"},
    {kVerify, "verify --candidate ./libmykernel.so --op attention"},
    {"reproduce", "reproduce @1 --dump tensors"},
    {"judge", "judge call.npz --op attention"},
    {"merge", "merge a.json b.json --json all.json"},
    {"explain", "explain value_shift --op attention"},
    {"cases", "cases attention"},
    {"mutants", "mutants --only NC-01 --json scores.json"},
    {"manual", "manual | man -l -"},
    {"completion", "completion bash > attncheck.bash"}};

/// Exit statuses, then the example of a command.
std::string footer_of(const std::string& command) {
    std::string footer = "Exit status:\n";
    for (const ExitMeaning& one : kExitMeanings) footer += fmt::format("  {:<4} {}\n", one.status, one.meaning);
    return footer + "\nExample: " + help_example(command);
}

}  // namespace

void set_help(CLI::App& app) {
    app.formatter(std::make_shared<ShortLines>());
    app.footer(footer_of(kVerify));
}

std::string help_example(const std::string& command) {
    const auto* const at = std::ranges::find(kExamples, command, &Example::command);
    return "attncheck " + (at == std::end(kExamples) ? command : std::string(at->line));
}

void set_examples(CLI::App& app) {
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) command->footer(footer_of(command->get_name()));
}

}  // namespace attncheck::properties
