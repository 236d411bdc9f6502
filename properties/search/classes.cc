#include "properties/search/classes.h"

#include <algorithm>

#include "properties/report/clause_coverage.h"
#include "properties/search/class_pairs.h"

namespace attncheck::properties {

ClassQuotas quotas_of(const Operator& op, const ref::RoundingClass& rounding) {
    // Few laws judge NaN of hidden keys where they are multiplied by 0, and these draw it half as often: 1.6 to 2.2 % are seen.
    constexpr double kUnderTimesZero = 0.25;
    ClassQuotas quotas;
    for (const RequiredClass& required : op.required_classes())
        quotas.percent[required.label] =
            required.min_percent * (rounding.hidden_times_zero && required.label == "hidden_nan" ? kUnderTimesZero : 1);
    return quotas;
}

ClassQuotas quotas_of(const TakenCases& taken) {
    ClassQuotas quotas;
    quotas.is_limited = true;
    for (const std::string& label : taken.classes) quotas.percent[label] = 0;
    return quotas;
}

void judge_classes(const Operator& op, RunReport& report) {
    const auto taken = report.taken.find(op.name());
    const bool is_limited =  // in more than its outputs
        taken != report.taken.end() && !taken->second.pairs.words.empty();
    const auto rounding = ref::parse_rounding_class(report.precision.empty() ? "default" : report.precision);
    report.properties.push_back(verdict_on_classes(op.name(), is_limited ? quotas_of(taken->second) : quotas_of(op, rounding),
                                                   report.properties, report.shards - 1));
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
