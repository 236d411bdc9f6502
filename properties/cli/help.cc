#include "properties/cli/help.h"

#include <fmt/format.h>

#include <memory>
#include <sstream>

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

}  // namespace

void set_help(CLI::App& app) {
    app.formatter(std::make_shared<ShortLines>());
    std::string footer = "Exit status:\n";
    for (const ExitMeaning& one : kExitMeanings) footer += fmt::format("  {:<4} {}\n", one.status, one.meaning);
    app.footer(footer + "\nExample: attncheck verify --candidate ./libmykernel.so --op attention");
}

}  // namespace attncheck::properties
