#include "properties/report/conclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/case/number_text.h"

namespace attncheck::properties {
namespace {

/// Of the elements of a property. A bound that is as wide as the type says nothing.
constexpr double kMostUnjudged = 0.5;
/// The same of a property under hidden=times_zero, where a NaN of a hidden key gives away the rows that it
/// reaches: measured on every operator, 63 to 94 % in non_finite, below 55 % elsewhere. Cases of which most is given
/// away do not count among those that a verdict needs.
constexpr double kMostGivenAway = 0.97;

/// Elements that no bound can judge are not shown as held: a property that compares few of them is
/// inconclusive.
void conclude_on_elements(PropertyReport& report, double most) {
    if (report.elements.share() <= most) return;
    report.status = PropertyReport::Status::inconclusive;
    report.note = fmt::format("the bounds say nothing of {:.0f} % of its elements, allowed: {:.0f}",
                              100 * report.elements.share(), 100 * most);
}

}  // namespace

double most_unjudged(const ref::RoundingClass& rounding) {
    return rounding.hidden_times_zero ? kMostGivenAway : kMostUnjudged;
}

void conclude(PropertyReport& report, std::int64_t needed, double most_unjudged, bool counts_elements) {
    const DrawnCases& drawn = report.drawn;
    if (report.cases + report.replayed == 0 && drawn.inapplicable > 0) {
        report.status = PropertyReport::Status::not_applicable;
        report.note = "applies to none of " + counted(drawn.inapplicable, "case");
        return;
    }
    if (report.cases - drawn.hardly_compared >= needed) {
        conclude_on_elements(report, most_unjudged);
        // Of a kernel that takes empty sequences alone.
        if (counts_elements && report.property == kComparing && report.cases > 0 && report.elements.compared == 0) {
            report.status = PropertyReport::Status::inconclusive;
            report.note = fmt::format("no output of {} has an element to compare", counted(report.cases, "case"));
        }
        return;
    }
    if (drawn.is_outside && report.cases == 0) {
        report.status = PropertyReport::Status::declined;
        report.note = "no case of this property is one that the candidate takes";
        return;
    }
    if (drawn.is_mostly_declined) {
        report.status = PropertyReport::Status::declined;
        report.note = "compares with calls that the candidate does not take";
        return;
    }
    report.status = PropertyReport::Status::inconclusive;
    report.note = fmt::format("{} of {} cases that are needed", report.cases - drawn.hardly_compared, needed);
    if (drawn.hardly_compared > 0)
        report.note += fmt::format(", the bounds say nothing of most elements of {} others", drawn.hardly_compared);
    if (drawn.inapplicable > 0) report.note += fmt::format(", it does not apply to {} others", drawn.inapplicable);
    if (report.declined == 0) return;  // what is outside was not drawn, and cost no case
    report.note += fmt::format(", {} were declined", report.declined);
    if (!report.taken.refusals.empty()) report.note += "; outside of what is taken: " + report.taken.refusals;
}

std::int64_t sufficient_time(const RunReport& report) {
    constexpr double kStep = 30, kFew = 3;
    constexpr std::int64_t kMostDeclined = 4;
    double spent = 0, lacking = 0, cases = 0;
    for (const PropertyReport& one : report.properties) spent += one.seconds, cases += static_cast<double>(one.cases);
    const double usual = spent / std::max(cases, 1.0);  // seconds of a case
    for (const PropertyReport& one : report.properties) {
        const auto met = static_cast<double>(one.cases - one.drawn.hardly_compared),
                   needed = static_cast<double>(one.drawn.needed);
        if (one.status != PropertyReport::Status::inconclusive || met >= needed) continue;
        if (one.declined > kMostDeclined * one.cases) return 0;  // of those that are declined the time is counted, too
        const double own = one.seconds / std::max(met, 1.0);
        lacking += (needed - met) * (met < kFew ? std::max(own, usual) : own);  // one that never ran took no time
    }
    if (lacking <= 0) return 0;
    const double whole = report.duration_s * (1 + lacking / spent);
    return static_cast<std::int64_t>(kStep * std::ceil(whole / kStep));
}

}  // namespace attncheck::properties
