#include "properties/search/waiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace attncheck::properties {

bool Waiver::applies(const std::string& to_op, const std::string& to_property,
                     const std::vector<std::string>& case_labels) const {
    return (op == "*" || op == to_op) && (property == "*" || property == to_property) &&
           std::ranges::all_of(labels, [&](const std::string& label) {
               return std::ranges::find(case_labels, label) != case_labels.end();
           });
}

std::vector<Waiver> read_waivers(const std::string& path,
                                 const std::vector<std::unique_ptr<Operator>>& operators) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error(fmt::format("cannot read {}", path));
    std::vector<Waiver> waivers;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        line = line.substr(0, line.find('#'));
        std::istringstream words(line);
        Waiver waiver;
        if (!(words >> waiver.op)) continue;
        std::string labels;
        words >> waiver.property >> labels >> std::ws;
        std::getline(words, waiver.reason);
        if (waiver.reason.empty())
            throw std::runtime_error(
                fmt::format("{}:{}: expected OPERATOR PROPERTY LABELS REASON", path, number));
        const auto op = std::ranges::find(operators, waiver.op,
                                          [](const auto& one) { return one->name(); });
        if (waiver.op != "*" && op == operators.end())
            throw std::runtime_error(
                fmt::format("{}:{}: unknown operator {}", path, number, waiver.op));
        if (waiver.op != "*" && waiver.property != "*" && !(*op)->property(waiver.property))
            throw std::runtime_error(fmt::format("{}:{}: {} has no property {}", path, number,
                                                 waiver.op, waiver.property));
        std::istringstream parts(labels == "*" ? "" : labels);
        for (std::string label; std::getline(parts, label, ',');) waiver.labels.push_back(label);
        waivers.push_back(std::move(waiver));
    }
    return waivers;
}

}  // namespace attncheck::properties
