#include "properties/search/classes.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/report/clause_coverage.h"
#include "properties/search/class_pairs.h"

namespace attncheck::properties {

GeneratedClasses generated_classes(const std::string& op,
                                   const std::vector<PropertyReport>& properties) {
    constexpr std::int64_t kHandful = 20;
    GeneratedClasses all;
    int counted = 0;
    for (const auto& p : properties) {
        if (p.op != op) continue;
        const auto edited = p.labels.find(kEditedLabel);
        const std::int64_t cases = p.cases - (edited == p.labels.end() ? 0 : edited->second);
        if (cases < kHandful) continue;
        ++counted;
        all.cases += cases;
        for (const auto& [label, count] : p.labels)
            all.percent[label] += 100.0 * static_cast<double>(count) / static_cast<double>(cases);
    }
    for (auto& [label, sum] : all.percent) sum /= counted;
    return all;
}

std::vector<std::string> missing_classes(const Operator& op,
                                         const std::map<std::string, double>& percent) {
    std::vector<std::string> missing;
    for (const RequiredClass& required : op.required_classes()) {
        const auto it = percent.find(required.label);
        const double share = it == percent.end() ? 0 : it->second;
        if (share < required.min_percent)
            missing.push_back(fmt::format("{}: {:.2f} % of cases, at least {} % required",
                                          required.label, share, required.min_percent));
    }
    return missing;
}

std::vector<std::string> missing_classes(const TakenCases& taken,
                                         const std::map<std::string, double>& percent) {
    std::vector<std::string> missing;
    for (const std::string& label : taken.classes)
        if (!percent.contains(label)) missing.push_back(label + ": in no case");
    return missing;
}

void judge_classes(const Operator& op, RunReport& report) {
    constexpr std::int64_t kEnough = 1000;
    const auto [percent, cases] = generated_classes(op.name(), report.properties);
    const bool has_declined =
        std::any_of(report.properties.begin(), report.properties.end(),
                    [&](const auto& p) { return p.op == op.name() && p.declined > 0; });
    PropertyReport verdict;
    verdict.op = op.name();
    verdict.property = "required_classes";
    if (cases < kEnough) {
        verdict.note = fmt::format("not judged: {} cases, at least {} needed", cases, kEnough);
        verdict.status = PropertyReport::Status::declined;
        report.properties.push_back(std::move(verdict));
        return;
    }
    const auto taken = report.taken.find(op.name());
    const bool is_limited =  // in more than its outputs
        taken != report.taken.end() && !taken->second.pairs.words.empty();
    const auto missing =
        is_limited ? missing_classes(taken->second, percent) : missing_classes(op, percent);
    for (const auto& one : missing) verdict.note += (verdict.note.empty() ? "" : "; ") + one;
    if (!missing.empty()) {
        verdict.status = is_limited     ? PropertyReport::Status::inconclusive
                         : has_declined ? PropertyReport::Status::declined
                                        : PropertyReport::Status::error;
        if (has_declined && !is_limited)
            verdict.note = "the candidate declined cases: " + verdict.note;
    }
    report.properties.push_back(std::move(verdict));
}

void judge_clauses(const Operator& op, RunReport& report) {
    const auto validation =
        std::ranges::find_if(report.properties, [&](const PropertyReport& p) {
            return p.op == op.name() && p.clauses.possible > 0;
        });
    if (validation == report.properties.end() || report.profile != Profile::ascend910b) return;
    PropertyReport verdict;
    verdict.op = op.name();
    verdict.property = "required_clauses";
    const auto [status, note] = verdict_on(validation->clauses, validation->declined, report.shards - 1);
    verdict.status = status;
    verdict.note = note;
    report.properties.push_back(std::move(verdict));
}

void count_pairs(const Operator& op, RunReport& report) {
    PairSet reached;
    std::int64_t cases = 0;
    for (const auto& p : report.properties) {
        if (p.op != op.name()) continue;
        reached.add_all(p.pairs);
        cases += p.cases;
    }
    if (cases == 0) return;
    const auto taken = report.taken.find(op.name());
    report.pairs.push_back(taken == report.taken.end() || taken->second.pairs.words.empty()
                               ? ClassPairs(op).coverage(reached)
                               : ClassPairs(op).coverage(reached, taken->second.pairs));
}

}  // namespace attncheck::properties
