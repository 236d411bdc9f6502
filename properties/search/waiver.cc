#include "properties/search/waiver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

#include "properties/case/spelling.h"
#include "properties/report/causes.h"

namespace attncheck::properties {
namespace {

/// Whether `pattern`, where * stands for any text, is all of `text`.
bool matches(std::string_view pattern, std::string_view text) {
    const std::size_t star = pattern.find('*');
    if (star == pattern.npos) return pattern == text;
    if (!text.starts_with(pattern.substr(0, star))) return false;
    pattern.remove_prefix(star + 1);
    for (std::size_t at = star; at <= text.size(); ++at)
        if (matches(pattern, text.substr(at))) return true;
    return false;
}

/// The labels that cases of an operator have: those that runs require, and those of many drawn cases.
std::set<std::string> known_labels(const Operator& op) {
    constexpr int kDrawn = 1500, kSizes = 101;
    std::set<std::string> known{kEditedLabel};
    for (const RequiredClass& one : op.required_classes()) known.insert(one.label);
    Random random(1);
    for (int k = 0; k < kDrawn; ++k)
        for (std::string& label : op.labels(op.sample(random, k % kSizes))) known.insert(std::move(label));
    return known;
}

/// Reads one line; what is wrong with it is thrown without its place.
class LineReader {
public:
    explicit LineReader(const std::vector<std::unique_ptr<Operator>>& operators) : operators_(operators) {}

    /// False for a line without a waiver.
    bool read(const std::string& line, Waiver& waiver) {
        std::istringstream words(without_comment(line));
        std::string labels;
        if (!(words >> waiver.op)) return false;
        words >> waiver.property >> labels >> std::ws;
        std::getline(words, waiver.reason);
        while (take_option("failure=", waiver.reason, waiver.failure) ||
               take_option("output=", waiver.reason, waiver.output)) {
        }
        refuse_other_option(waiver.reason);
        waiver.reason.erase(waiver.reason.find_last_not_of(" \t") + 1);
        if (waiver.reason.empty())
            throw std::runtime_error(
                "expected OPERATOR PROPERTY LABELS [failure=\"CLASS\"] [output=NAME] REASON");
        std::istringstream parts(labels == "*" ? "" : labels);
        for (std::string label; std::getline(parts, label, ',');) waiver.labels.push_back(label);
        check(waiver);
        return true;
    }

private:
    static std::string without_comment(const std::string& line) {
        for (std::size_t at = line.find('#'); at != std::string::npos; at = line.find('#', at + 1))
            if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
        return line;
    }

    /// Takes "NAME=VALUE" or NAME="VALUE" off the beginning of the rest of a line.
    static bool take_option(const std::string& name, std::string& rest, std::string& value) {
        if (!rest.starts_with(name)) return false;
        const bool is_quoted = rest.size() > name.size() && rest[name.size()] == '"';
        const std::size_t begin = name.size() + (is_quoted ? 1 : 0),
                          end = rest.find(is_quoted ? '"' : ' ', begin);
        if (is_quoted && end == std::string::npos) throw std::runtime_error(name + "\"... has no second quote");
        value = rest.substr(begin, end - begin);
        const std::size_t next = end == std::string::npos ? end : rest.find_first_not_of(' ', end + 1);
        rest = next == std::string::npos ? "" : rest.substr(next);
        return true;
    }

    /// A misspelt option would be part of the reason, and its line waive everything.
    static void refuse_other_option(const std::string& reason) {
        const std::size_t end = reason.find_first_of("= \t");
        if (end == 0 || end == std::string::npos || reason[end] != '=') return;
        throw std::runtime_error(fmt::format("unknown option {}=, allowed before the reason: failure= output=",
                                             reason.substr(0, end)));
    }

    void check(const Waiver& waiver) {
        std::vector<const Operator*> meant;
        for (const auto& op : operators_)
            if (waiver.op == "*" || waiver.op == op->name()) meant.push_back(op.get());
        if (meant.empty()) {
            std::vector<std::string> names;
            for (const auto& op : operators_) names.push_back(op->name());
            throw std::runtime_error(unknown_name("operator", waiver.op, names));
        }
        const auto has_property = [&](const Operator* op) { return op->property(waiver.property) != nullptr; };
        if (waiver.property != "*" && std::ranges::none_of(meant, has_property)) {
            std::vector<std::string> names;
            for (const Operator* op : meant)
                for (const Property& property : op->properties()) names.push_back(property.name);
            throw std::runtime_error(fmt::format("{} property {}{}", op_text(waiver.op), waiver.property,
                                                 suggestion(waiver.property, names)));
        }
        for (const std::string& label : waiver.labels)
            if (std::ranges::none_of(meant, [&](const Operator* op) { return labels_of(*op).contains(label); }))
                throw std::runtime_error(unknown_label(label, meant));
        if (waiver.output == "*") return;
        const auto is_output = [&](const Operator* op) {
            const int at = op->schema().tensor(waiver.output);
            return at >= 0 && op->schema().tensors[static_cast<std::size_t>(at)].output;
        };
        if (std::ranges::none_of(meant, is_output)) {
            std::vector<std::string> names;
            for (const Operator* op : meant)
                for (const auto& tensor : op->schema().tensors)
                    if (tensor.output) names.push_back(tensor.name);
            throw std::runtime_error(fmt::format("{} output {}{}", op_text(waiver.op), waiver.output,
                                                 suggestion(waiver.output, names)));
        }
    }

    static std::string op_text(const std::string& op) { return op == "*" ? "no operator has the" : op + " has no"; }

    /// ", did you mean 'agreement'?"; empty where no name resembles it.
    static std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
        const std::string meant = resembling(name, known);
        return meant.empty() ? "" : fmt::format(", did you mean '{}'?", meant);
    }

    std::string unknown_label(const std::string& label, const std::vector<const Operator*>& meant) {
        const std::string kind = label.substr(0, label.find(':'));
        std::vector<std::string> near, all;
        for (const Operator* op : meant) std::ranges::copy(labels_of(*op), std::back_inserter(all));
        for (const Operator* op : meant)
            for (const std::string& one : labels_of(*op))
                if (meant.size() == 1 && (kind == label || one.starts_with(kind + ":"))) near.push_back(one);
        const std::string known = near.empty() ? "" : fmt::format(", known: {}", fmt::join(near, " ")),
                          alike = suggestion(label, all);
        const bool are_few = kind != label && !near.empty();  // the values of one field
        return fmt::format("no case of {} has the label {}{}", meant.size() == 1 ? meant[0]->name() : "any operator",
                           label, are_few || alike.empty() ? known : alike);
    }

    const std::set<std::string>& labels_of(const Operator& op) {
        const auto [at, is_new] = labels_.try_emplace(op.name());
        if (is_new) at->second = known_labels(op);
        return at->second;
    }

    const std::vector<std::unique_ptr<Operator>>& operators_;
    std::map<std::string, std::set<std::string>> labels_;
};

}  // namespace

bool Waiver::applies(const std::string& to_op, const std::string& to_property,
                     const std::vector<std::string>& case_labels, const std::string& to_failure) const {
    return (op == "*" || op == to_op) && (property == "*" || property == to_property) &&
           matches(failure, to_failure) && (output == "*" || output == output_of(to_failure)) &&
           std::ranges::all_of(labels, [&](const std::string& label) {
               return std::ranges::find(case_labels, label) != case_labels.end();
           });
}

std::string Waiver::text() const {
    return fmt::format("{} {} {}{}{} {}", op, property, labels.empty() ? "*" : fmt::format("{}", fmt::join(labels, ",")),
                       failure == "*" ? "" : fmt::format(" failure=\"{}\"", failure),
                       output == "*" ? "" : fmt::format(" output={}", output), reason);
}

std::vector<Waiver> read_waivers(const std::string& path,
                                 const std::vector<std::unique_ptr<Operator>>& operators) {
    if (std::filesystem::is_directory(path)) throw std::runtime_error(fmt::format("cannot read {}: it is a directory", path));
    std::ifstream in(path);
    if (!in) throw std::runtime_error(fmt::format("cannot read {}", path));
    std::vector<Waiver> waivers;
    LineReader reader(operators);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        Waiver waiver;
        try {
            if (reader.read(line, waiver)) waivers.push_back(std::move(waiver));
        } catch (const std::runtime_error& e) {
            throw std::runtime_error(fmt::format("{}:{}: {}", path, number, e.what()));
        }
    }
    return waivers;
}

}  // namespace attncheck::properties
