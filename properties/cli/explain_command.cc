#include "properties/cli/explain_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "properties/cli/command.h"
#include "properties/cli/law_text.h"
#include "properties/cli/names.h"
#include "properties/operators/operator.h"
#include "properties/report/terminal.h"

namespace attncheck::properties {
namespace {

/// Other names that operators have for a shared law.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"unread", "hidden"}, {"unselected", "hidden"}, {"hidden_keys", "causality"}};

constexpr std::size_t kPageColumns = 80, kLawColumn = 8;

/// Rows of a report that are no property: they judge the run.
constexpr std::pair<std::string_view, std::string_view> kOfRuns[] = {
    {"required_classes",
     "the run met the classes of cases that it must\n\n"
     "Every operator names classes of cases on which kernels have failed, such as an\n"
     "empty sequence or a ragged tile, and the share of the cases that each must have.\n"
     "A run of fewer than 1000 cases is not judged. `attncheck verify -v` prints how\n"
     "often each class was met; a class that the library declines is not asked for.\n"},
    {"required_clauses",
     "every clause of the contract decided a call\n\n"
     "Each clause of the documented constraints must reject a call of `validation` at the\n"
     "first illegal value, and the last legal one must be accepted.\n"}};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// "nsa_compress" of "properties/operators/nsa_compress/relations.cc"; empty for shared laws.
std::string operator_folder(const std::string& path) {
    const std::string folder = folder_of(path);
    constexpr std::string_view kRoom = "properties/operators/";
    return folder.starts_with(kRoom) ? folder.substr(kRoom.size()) : "";
}

/// How well a text fits: 0 not at all, then shared laws, then those of a folder whose name begins
/// that of the operator, the longer the better.
std::size_t fit_of(const LawText& text, const Operator& op) {
    const std::string folder = operator_folder(text.path);
    if (folder.empty()) return 1;
    const bool is_own = op.name() == folder || op.name().starts_with(folder + "_");
    return is_own ? 1 + folder.size() : 0;
}

const LawText* best_text(const Operator& op, const std::string& law) {
    const LawText* best = nullptr;
    std::size_t best_fit = 0;
    for (const bool is_exact : {true, false}) {  // end_to_end_with checks end_to_end
        for (const LawText& text : law_texts()) {
            const bool is_named = is_exact ? text.name == law : text.name.starts_with(law + "_");
            const std::size_t fit = is_named ? fit_of(text, op) : 0;
            if (fit > best_fit) best = &text, best_fit = fit;
        }
        if (best) return best;
    }
    return nullptr;
}

/// A text of the sources in lines of a page: what is said under one head is one paragraph.
std::string on_a_page(const std::string& text) {
    constexpr std::string_view kHeads[] = {"Why", "Domain", "Bound", "Demand", "Kills", "Shrinks"};
    std::vector<std::string> paragraphs;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t at = std::min(line.find_first_not_of(' '), line.size());
        const bool is_head = std::ranges::any_of(kHeads, [&](std::string_view head) { return line.starts_with(head) && line.find(' ') == head.size(); });
        if (is_head || at == line.size() || paragraphs.empty() || paragraphs.back().empty())
            paragraphs.push_back(line.substr(at));
        else
            paragraphs.back() += " " + line.substr(at);
    }
    std::string out;
    for (const std::string& paragraph : paragraphs)
        out += broken_line(paragraph, kPageColumns, paragraph.find("  ") < kLawColumn ? kLawColumn : 0) + "\n";
    return out;
}

}  // namespace

const LawText* law_text(const Operator& op, const std::string& law) {
    if (const LawText* const own = best_text(op, law)) return own;
    for (const auto& [name, of] : kOtherNames)
        if (law == name) return best_text(op, std::string(of));
    return nullptr;
}

int explain_command(const std::string& law, const std::vector<std::string>& ops) {
    for (const std::string& name : ops) (void)operator_named(name);
    struct Part {
        std::string summary;
        const LawText* text;
        std::vector<std::string> ops;
    };
    std::vector<Part> parts;
    for (const auto& op : operators()) {
        const Property* const property = op->property(law);
        if (!property || (!ops.empty() && std::ranges::find(ops, op->name()) == ops.end())) continue;
        const LawText* const text = law_text(*op, law);
        const auto same = std::ranges::find_if(parts, [&](const Part& part) {
            return part.text == text && part.summary == property->summary;
        });
        if (same != parts.end())
            same->ops.push_back(op->name());
        else
            parts.push_back({property->summary, text, {op->name()}});
    }
    for (const auto& [name, text] : kOfRuns)
        if (law == name) {
            say("{}: {}", law, text);
            return kHeld;
        }
    const std::vector<std::string> known = property_names();
    if (parts.empty() && std::ranges::find(known, law) != known.end())
        throw UsageError(fmt::format("{} has no property '{}'", fmt::join(ops, ", "), law));
    if (parts.empty()) throw UsageError(unknown_name("property", law, known));
    for (const Part& part : parts) {
        say("{}\n{}\n", broken_line(law + ": " + part.summary, kPageColumns, 4),
            broken_line(fmt::format("  of {}", fmt::join(part.ops, ", ")), kPageColumns, 5));
        // One text may be that of several directions: it stands below the last of them.
        const bool comes_again = std::any_of(parts.begin() + (&part - parts.data()) + 1, parts.end(), [&](const Part& later) {
            return later.text == part.text;
        });
        if (part.text && !comes_again) say("\n{}\n  from {}\n", on_a_page(part.text->text), part.text->path);
        if (&part != &parts.back()) say("\n");
    }
    return kHeld;
}

}  // namespace attncheck::properties
