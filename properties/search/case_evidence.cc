#include "properties/search/case_evidence.h"

#include <algorithm>

namespace attncheck::properties {

CaseEvidence::CaseEvidence(const Operator& op, const Property& property, const EngineOptions& options)
    : op_(op), property_(property), options_(options), pairs_(op) {}

/// A call with edited arguments is a case of validation only: its lists and data decide nothing, and counting them
/// would dilute or fill the quotas of what is computed.
void CaseEvidence::add_classes(const Spec& spec, const std::vector<std::string>& labels,
                               PropertyReport& report) const {
    ++report.cases;
    if (!spec.edits.empty()) {
        ++report.labels[kEditedLabel];
        ++report.drawn.edited;
        return;
    }
    for (const auto& label : labels) ++report.labels[label];
    pairs_.note(labels, report.pairs);
}

void CaseEvidence::add_errors(const Verdict& verdict, PropertyReport& report) const {
    report.worst_ratio = std::max(report.worst_ratio, verdict.worst_ratio);
    if (!property_.validation && (!verdict.failed() || verdict.worst_ratio > 0))  // a death has no error
        report.ratios.add(verdict.worst_ratio);
    if (property_.validation && !verdict.failed() && !verdict.clause.empty()) ++report.rejected;
    report.differing += verdict.differing > 0;
    report.elements.add(verdict.elements);
    for (const CastEvidence& cast : verdict.casts) add_evidence(report.casts, cast);
    for (const BoundEvidence& bound : verdict.bounds) add_evidence(report.bounds, bound);
}

bool CaseEvidence::waives(const std::string& failure, const std::vector<std::string>& labels,
                          PropertyReport& report) const {
    const auto waiver = std::ranges::find_if(options_.waivers, [&](const Waiver& one) {
        return one.applies(op_.name(), property_.name, labels, failure);
    });
    if (waiver == options_.waivers.end()) return false;
    ++report.waived;
    if (std::ranges::find(report.waivers, waiver->reason) == report.waivers.end())
        report.waivers.push_back(waiver->reason);
    return true;
}

}  // namespace attncheck::properties
