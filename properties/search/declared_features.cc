// What the text of a declaration says: features and outputs by operator.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "properties/case/outputs.h"
#include "properties/search/survey.h"

namespace attncheck::properties {
namespace {

/// Calls `take` with the operator and the features of each line.
template <class Take>
void for_each_line(const std::string& declaration, Take take) {
    std::string lines = declaration;
    std::ranges::replace(lines, ';', '\n');
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
        const std::size_t start = line.find_first_not_of(' '), colon = line.find(": ");
        if (start == std::string::npos) continue;
        if (colon == std::string::npos)
            throw std::invalid_argument(
                fmt::format("'{}' names no operator: expected 'operator: field=values'", line));
        take(line.substr(start, colon - start), line.substr(colon + 1));
    }
}

}  // namespace

std::string features_of(const std::string& declaration, const std::string& op) {
    std::string out;
    for_each_line(declaration, [&](const std::string& name, const std::string& features) {
        if (name == op) out += features;
    });
    return out;
}

std::vector<std::string> operators_of(const std::string& declaration) {
    std::vector<std::string> out;
    for_each_line(declaration,
                  [&](const std::string& name, const std::string&) { out.push_back(name); });
    return out;
}

std::uint64_t withheld_outputs(const std::string& declaration, const Operator& op) {
    Scope scope(op);
    scope.restrict_to(features_of(declaration, op.name()));
    return scope.withheld();
}

std::vector<std::string> missing_outputs(const std::string& declaration,
                                         const std::vector<std::unique_ptr<Operator>>& operators) {
    std::vector<std::string> out;
    for (const auto& op : operators)
        for (const std::string& output :
             withheld_names(op->schema(), withheld_outputs(declaration, *op)))
            out.push_back(fmt::format("{}.{}", op->name(), output));
    return out;
}

std::function<bool(const Spec&)> declared_cases(
    const std::string& declaration, const std::vector<std::unique_ptr<Operator>>& operators) {
    auto scopes = std::make_shared<std::map<const Schema*, Scope>>();
    for (const auto& op : operators) {
        Scope scope(*op);
        scope.restrict_to(features_of(declaration, op->name()));
        if (scope.is_declared()) scopes->emplace(&op->schema(), std::move(scope));
    }
    if (scopes->empty()) return {};
    return [scopes](const Spec& spec) {
        const auto at = scopes->find(spec.schema);
        return at == scopes->end() || at->second.holds(spec);
    };
}

}  // namespace attncheck::properties
