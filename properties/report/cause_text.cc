#include "properties/report/cause_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <set>
#include <string_view>

#include "properties/case/number_text.h"
#include "properties/case/printable.h"
#include "properties/report/terminal.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kMostCauses = 8, kIndent = 14;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The worst element, or the first one, of a message that says how many are wrong: the line behind "...; worst:". Else
/// its first line.
std::string worst_of(const std::string& message) {
    const std::string head = first_line(message);
    if (!head.ends_with(':') || head.size() == message.size()) return head;
    const std::string next = first_line(message.substr(head.size() + 1));
    const std::size_t begin = std::min(next.find_first_not_of(' '), next.size());
    return next.substr(begin, 1) == "[" ? next.substr(begin) : head.substr(0, head.rfind(';'));
}

/// Names once each, in their order.
std::vector<std::string> unique(const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names)
        if (std::ranges::find(out, name) == out.end()) out.push_back(name);
    return out;
}

/// A case line to look at: of a long list the first entries and the number of the others. Replaying needs none of it.
std::string to_look_at(const std::string& line) {
    constexpr std::size_t kLongest = 160, kKept = 100;
    std::string out;
    for (std::size_t at = 0; at < line.size(); ++at) {
        out += line[at];
        if (line[at] != '[') continue;
        std::vector<std::size_t> commas;
        std::size_t end = at + 1;
        for (int depth = 1; end < line.size(); ++end) {
            depth += line[end] == '[' ? 1 : line[end] == ']' ? -1 : 0;
            if (depth == 0) break;
            if (depth == 1 && line[end] == ',') commas.push_back(end);
        }
        const auto cut = std::ranges::lower_bound(commas, at + kKept);
        if (end - at <= kLongest || cut == commas.end()) continue;
        out += fmt::format("{}, and {} more", line.substr(at + 1, *cut - at - 1), commas.end() - cut);
        at = end - 1;
    }
    return out;
}

/// A path as a word of a shell command, in quotes only where it needs them.
std::string shell_word(const std::string& path) {
    const bool is_plain = std::ranges::all_of(path, [](unsigned char ch) {
        return std::isalnum(ch) != 0 || std::string_view("_./+,=@%-").find(static_cast<char>(ch)) != std::string_view::npos;
    });
    return is_plain ? path : shell_quoted(path);
}

/// Exceptions of Python by which kernels refuse calls.
bool may_refuse(const std::string& failure) {
    return failure == "raised AssertionError" || failure == "raised ValueError" || failure == "raised RuntimeError";
}

class CausePrinter {
public:
    CausePrinter(std::ostream& out, const std::vector<Failure>& failures, const std::vector<int>& numbers,
                 const std::string& path)
        : out_(out), failures_(failures), numbers_(numbers), path_(path) {}

    void print(const Cause& cause, bool verbose) const {
        const std::size_t best = cause.failures.front();
        const Failure& first = failures_[best];
        out_ << "\n"
             << shaded(out_, Shade::strong, fmt::format("@{} {}", numbers_[best], title_of(cause, first)))
             << "\n";
        if (cause.checks_nothing)
            line("note", "no illegal call was rejected; --no-validation leaves such calls out");
        if (cause.has_name) line("looks like", name_of(cause));
        if (first.certificate.starts_with(kNotAlone) || first.certificate.ends_with(kShownAsFound))
            line("note", first.certificate);
        if (!cause.has_name && !cause.checks_nothing) line("wrong", worst_of(first.message));
        if (may_refuse(first.failure))
            line("note", "if the kernel does not take such calls: raise attncheck.Declined(\"why\"), or say in `features` what it takes");
        out_ << fmt::format("  {:<11} {}\n", head_of_case(first.certificate),
                            verbose ? first.case_line : to_look_at(first.case_line));
        if (const std::string matters = matters_of(cause); !matters.empty()) line("matters", "one by one: " + matters);
        if (const auto others = others_of(cause); !others.empty())
            line("also fails", fmt::format("{}", fmt::join(others, "; ")));
        if (verbose)
            for (const std::size_t i : cause.failures)
                if (i != best)
                    out_ << fmt::format("  @{:<10} {}.{}: {}\n{:14}{}\n", numbers_[i], failures_[i].op,
                                        failures_[i].property, failures_[i].failure, "",
                                        failures_[i].case_line);
        // Not broken, as case lines are not: it is there to be copied.
        out_ << fmt::format("  {:<11} {}\n", "replay", replay_of(best));
    }

private:
    void line(const char* head, const std::string& text) const {
        out_ << fitted(out_, fmt::format("  {:<11} {}\n", head, text), kIndent);
    }

    std::string replay_of(std::size_t i) const {
        if (path_.empty() && !failures_[i].replay.empty()) return printable(failures_[i].replay);
        return fmt::format("attncheck reproduce @{}{}", numbers_[i], path_.empty() ? "" : " --report " + shell_word(path_));
    }

    /// With those of its hypotheses that most failures share.
    std::string name_of(const Cause& cause) const {
        std::string text = diagnosis_of(failures_[cause.named].message);
        const std::size_t colon = text.find(": "), end = text.find(", which explains");
        if (cause.likely.empty() || colon == std::string::npos || end == std::string::npos) return text;
        return fmt::format("{}{}{}", text.substr(0, colon + 2), fmt::join(cause.likely, ", or "), text.substr(end));
    }

    /// What matters of the first case, which another law may have said.
    std::string matters_of(const Cause& cause) const {
        const std::string& line = failures_[cause.failures.front()].case_line;
        for (const std::size_t i : cause.failures)
            if (failures_[i].case_line == line && !failures_[i].matters.empty()) return failures_[i].matters;
        return {};
    }

    std::string title_of(const Cause& cause, const Failure& first) const {
        if (cause.checks_nothing) {
            std::vector<std::string> ops;
            for (const std::size_t i : cause.failures) ops.push_back(failures_[i].op);
            return fmt::format("{}: the library checks no arguments", fmt::join(unique(ops), ", "));
        }
        std::string title = fmt::format("{}.{}: {}", first.op, first.property, first.failure);
        if (first.message.starts_with("after a call"))
            title += " " + first.message.substr(0, first.message.find(": "));
        else if (is_wrong_alone(first))
            title += kWhenAlone;
        return title;
    }

    /// Laws that fail as the title says, and behind each other failure those that fail with it.
    std::vector<std::string> others_of(const Cause& cause) const {
        const Failure& first = failures_[cause.failures.front()];
        std::vector<std::pair<std::string, std::vector<std::string>>> laws{{first.failure, {}}};
        for (const std::size_t i : cause.failures) {
            const Failure& one = failures_[i];
            if (one.op == first.op && one.property == first.property && one.failure == first.failure) continue;
            const std::string law = one.op == first.op ? one.property : one.op + "." + one.property;
            const std::string& failure = cause.checks_nothing ? first.failure : one.failure;
            auto same = std::ranges::find(laws, failure, &std::pair<std::string, std::vector<std::string>>::first);
            if (same == laws.end()) same = laws.insert(laws.end(), {failure, {}});
            same->second.push_back(law);
        }
        std::vector<std::string> texts;
        for (const auto& [failure, names] : laws)
            if (!names.empty())
                texts.push_back(fmt::format("{}{}", failure == first.failure ? "" : failure + ": ",
                                            fmt::join(unique(names), ", ")));
        return texts;
    }

    std::ostream& out_;
    const std::vector<Failure>& failures_;
    const std::vector<int>& numbers_;
    const std::string& path_;  ///< of the report that has the numbers; empty: that of the last run
};

}  // namespace

std::string picture_of(const std::string& message) {
    const std::size_t at = message.find("\n  where: ");
    if (at == std::string::npos) return {};
    std::size_t end = message.find('\n', at + 1);
    while (end != std::string::npos && message.compare(end + 1, 4, "    ") == 0)
        end = message.find('\n', end + 1);
    return message.substr(at + 3, end == std::string::npos ? end : end - at - 3);
}

std::string diagnosis_of(const std::string& message) {
    const std::string line = first_line(message);
    const std::size_t explained = line.find("; ", line.find("which explains"));
    return line.find("which explains") != std::string::npos ? line.substr(0, explained) : line;
}

std::vector<Cause> print_causes(std::ostream& out, const RunReport& report, bool verbose) {
    return print_causes(out, failures_of(report), rejects_nothing(report), verbose);
}

std::vector<Cause> print_causes(std::ostream& out, const std::vector<Failure>& failures,
                                bool rejects_nothing, bool verbose, const std::string& path) {
    std::vector<Cause> causes = causes_of(failures, rejects_nothing);
    const std::vector<int> numbers = numbers_of(causes, failures.size());
    const CausePrinter printer(out, failures, numbers, path);
    for (std::size_t k = 0; k < causes.size(); ++k) {
        if (k == kMostCauses && !verbose) {
            out << fmt::format("\nand {} more: -v shows them\n", causes.size() - kMostCauses);
            break;
        }
        printer.print(causes[k], verbose);
    }
    return causes;
}

std::string verdict_text(const std::vector<Cause>& causes, const RunReport& report) {
    const auto laws = std::ranges::count(report.properties, PropertyReport::Status::falsified,
                                         &PropertyReport::status);
    if (causes.empty()) return {};
    return fmt::format(": {} in {}", counted(causes.size(), "cause"), counted(laws, "law"));
}

}  // namespace attncheck::properties
