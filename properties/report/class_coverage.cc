#include "properties/report/class_coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace attncheck::properties {

GeneratedClasses generated_classes(const std::string& op, const std::vector<PropertyReport>& properties) {
    constexpr std::int64_t kHandful = 20;
    GeneratedClasses all;
    int counted = 0;
    for (const auto& p : properties) {
        if (p.op != op) continue;
        const std::int64_t cases = p.cases - p.drawn.edited;
        if (cases < kHandful) continue;
        ++counted;
        all.cases += cases;
        for (const auto& [label, count] : p.labels)
            all.percent[label] += 100.0 * static_cast<double>(count) / static_cast<double>(cases);
    }
    for (auto& [label, sum] : all.percent) sum /= counted;
    return all;
}

std::vector<std::string> missing_classes(const ClassQuotas& quotas, const std::map<std::string, double>& percent,
                                         double cases) {
    std::vector<std::string> missing;
    for (const auto& [label, least] : quotas.percent) {
        const auto it = percent.find(label);
        const double share = it == percent.end() ? 0 : it->second;
        if (quotas.is_limited && it == percent.end()) missing.push_back(label + ": in no case");
        // Three standard deviations of the number of such cases: fewer by chance is no lack.
        const double chance = 3 * std::sqrt(least / 100 / cases) * 100;
        if (!quotas.is_limited && share < least - chance)
            missing.push_back(fmt::format("{}: {:.2f} % of cases, at least {} % required", label, share, least));
    }
    return missing;
}

PropertyReport verdict_on_classes(const std::string& op, const ClassQuotas& quotas,
                                  const std::vector<PropertyReport>& properties, int missing_parts) {
    constexpr std::int64_t kEnough = 1000;
    using Status = PropertyReport::Status;
    PropertyReport verdict;
    verdict.op = op;
    verdict.property = "required_classes";
    verdict.quotas = quotas;
    const auto [percent, cases] = generated_classes(op, properties);
    if (missing_parts > 0 || cases < kEnough) {
        verdict.note = missing_parts > 0
                           ? "not judged: `attncheck merge` judges the classes of all shards"
                           : fmt::format("not judged: {} cases, at least {} needed", cases, kEnough);
        verdict.status = Status::declined;
        return verdict;
    }
    const auto missing = missing_classes(quotas, percent, static_cast<double>(cases));
    if (missing.empty()) return verdict;
    const bool has_declined =
        std::ranges::any_of(properties, [&](const auto& p) { return p.op == op && p.declined > 0; });
    verdict.note = fmt::format("{}", fmt::join(missing, "; "));
    verdict.status = quotas.is_limited ? Status::inconclusive : has_declined ? Status::declined : Status::error;
    if (has_declined && !quotas.is_limited) verdict.note = "the candidate declined cases: " + verdict.note;
    return verdict;
}

}  // namespace attncheck::properties
