#include "properties/report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

using Status = PropertyReport::Status;

constexpr std::size_t kWidth = 80;

/// Texts with commas between them, broken at blanks before `kWidth` and indented as far as the head.
std::string wrapped(const std::string& head, const std::vector<std::string>& texts) {
    std::istringstream words(fmt::format("{}", fmt::join(texts, ", ")));
    std::string out, line = head;
    for (std::string word; words >> word;) {
        if (line.size() + 1 + word.size() > kWidth && line.size() > head.size()) {
            out += line + "\n";
            line = std::string(head.size(), ' ');
        }
        line += " " + word;
    }
    return out + line + "\n";
}

/// How many cases each law had is for -v; why they were few is said once, of the operator.
std::string short_note(const PropertyReport& property) {
    const bool had_few = property.note.find(" cases that are needed") != std::string::npos;
    return had_few && property.status == Status::inconclusive ? "fewer cases than a verdict needs"
                                                              : property.note;
}

/// What is said of one operator.
class OperatorSummary {
public:
    explicit OperatorSummary(std::string op) : op_(std::move(op)) {}

    const std::string& op() const { return op_; }
    bool is_implemented() const { return applies_ > 0 || !others_.empty() || not_applicable_ > 0; }

    void add(const PropertyReport& p) {
        if (p.status == Status::not_applicable) ++not_applicable_, cases_ += p.cases;
        if (!applies(p)) return;
        cases_ += p.cases;
        ++applies_;
        if (p.status == Status::held) ++held_;
        if (p.status != Status::held) others_.push_back(&p);
        if (p.worst_ratio > worst_) worst_ = p.worst_ratio, law_ = p.property;
    }

    std::string text() const {
        std::string out =
            fmt::format("{:<27} {:>7} {:>9} {:>10}  {}\n", op_, fmt::format("{}/{}", held_, applies_),
                        cases_, ratio_text(worst_), law_);
        for (const Status status : {Status::falsified, Status::error, Status::inconclusive, Status::declined})
            out += text_of(status);
        return out;
    }

private:
    /// Laws with the same note together.
    std::string text_of(Status status) const {
        std::vector<std::pair<std::string, std::vector<std::string>>> by_note;
        for (const PropertyReport* p : others_) {
            if (p->status != status) continue;
            const std::string said = short_note(*p);
            auto at = std::ranges::find(by_note, said, [](const auto& one) { return one.first; });
            if (at == by_note.end()) at = by_note.insert(at, {said, {}});
            at->second.push_back(p->property);
        }
        std::string out;
        for (auto& [note, names] : by_note) {
            if (!note.empty()) names.back() += ": " + note;
            out += wrapped(fmt::format("  {:<13}", name_of(status)), names);
        }
        return out;
    }

    std::string op_, law_;
    int held_ = 0, applies_ = 0, not_applicable_ = 0;
    std::int64_t cases_ = 0;
    double worst_ = 0;
    std::vector<const PropertyReport*> others_;  ///< that do not hold
};

}  // namespace

bool applies(const PropertyReport& property) {
    if (property.status == Status::not_implemented || property.status == Status::not_applicable) return false;
    return property.status != Status::declined || !property.property.starts_with("required_");
}

std::string summary_of(const RunReport& report) {
    std::vector<OperatorSummary> all;
    for (const PropertyReport& p : report.properties) {
        auto at = std::ranges::find(all, p.op, &OperatorSummary::op);
        if (at == all.end()) at = all.insert(all.end(), OperatorSummary(p.op));
        at->add(p);
    }
    std::string out =
        fmt::format("{:<27} {:>7} {:>9} {:>10}  {}\n", "operator", "held", "cases", "worst err", "law");
    for (const OperatorSummary& one : all)
        if (one.is_implemented()) out += one.text();
    return out + not_implemented_by(report);
}

std::string not_implemented_by(const RunReport& report) {
    std::vector<std::string> missing, there;
    for (const PropertyReport& p : report.properties)
        if (auto& list = p.status == Status::not_implemented ? missing : there; std::ranges::find(list, p.op) == list.end())
            list.push_back(p.op);
    std::erase_if(missing, [&](const std::string& op) { return std::ranges::find(there, op) != there.end(); });
    return missing.empty() ? "" : wrapped("not implemented:", missing);
}

}  // namespace attncheck::properties
