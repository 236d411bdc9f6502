#include "properties/search/case_tally.h"

#include <fmt/format.h>

#include <algorithm>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kPlain = 12;  ///< of what people run, before others
/// Of the elements of a case, and of a property. A bound that is as wide as the type says nothing.
constexpr double kMostUnjudged = 0.5;
/// The same of a property under hidden=times_zero, where a NaN of a hidden key gives away the rows that it
/// reaches: measured on every operator, 63 to 83 % in non_finite, below 55 % elsewhere.
constexpr double kMostGivenAway = 0.9;

}  // namespace

CaseTally::CaseTally(const Property& property, const EngineOptions& options)
    : property_(property), options_(options) {
    const std::int64_t cases =
        options.cases == 0 ? 0
                           : std::max<std::int64_t>(1, options.cases * property.case_factor /
                                                           property.case_divisor);
    wanted_ = cases > 0 ? std::max<std::int64_t>(
                              1, (cases + options.shards - 1 - options.shard) / options.shards)
                        : 0;
    enough_ = wanted_ > 0 ? std::min(kConclusiveCases, wanted_) : kConclusiveCases;
    most_drawn_ = 2 * wanted_ + 4 * kConclusiveCases;
}

void CaseTally::add_judged(const ElementCount& elements) {
    ++(elements.share() > kMostUnjudged ? hardly_compared_ : judged_);
}

std::int64_t CaseTally::left(std::int64_t unlimited) const {
    if (wanted_ == 0) return unlimited;
    return std::max(wanted_ - judged_ - inapplicable - hardly_compared_, enough_ - judged_);
}

bool CaseTally::is_at_plain_cases() const {
    return drawn < std::min<std::int64_t>(kPlain, wanted_ > 0 ? wanted_ / 4 : kPlain);
}

bool CaseTally::has_met(std::int64_t cases) const {
    const std::int64_t met = judged_ + inapplicable + hardly_compared_;
    return (met >= cases && judged_ >= std::min(enough_, cases)) || drawn >= 4 * cases;
}

bool CaseTally::is_enough() const {
    return wanted_ > 0 && (has_judged_enough() || has_drawn_enough());
}

bool CaseTally::is_hopeless(const PropertyReport& so_far) const {
    return is_mostly_declined(so_far) || is_never_taken(so_far) || has_never_applied();
}

void CaseTally::conclude(PropertyReport& report, bool is_outside) const {
    if (report.cases + report.replayed == 0 && inapplicable > 0) {
        report.status = PropertyReport::Status::not_applicable;
        report.note = fmt::format("applies to none of {} cases", inapplicable);
        return;
    }
    if (report.cases - hardly_compared_ >= enough_) return conclude_on_elements(report);
    if (is_outside && report.cases == 0) {
        report.status = PropertyReport::Status::declined;
        report.note = "no case of this property is one that the candidate takes";
        return;
    }
    if (is_mostly_declined(report)) {
        report.status = PropertyReport::Status::declined;
        report.note = "compares with calls that the candidate does not take";
        return;
    }
    report.status = PropertyReport::Status::inconclusive;
    report.note =
        fmt::format("{} of {} cases that are needed", report.cases - hardly_compared_, enough_);
    if (hardly_compared_ > 0)
        report.note += fmt::format(", the bounds say nothing of most elements of {} others",
                                   hardly_compared_);
    if (inapplicable > 0)
        report.note += fmt::format(", it does not apply to {} others", inapplicable);
    if (report.declined > 0) report.note += fmt::format(", {} were declined", report.declined);
    if (!report.taken.refusals.empty())
        report.note += "; outside of what is taken: " + report.taken.refusals;
}

/// Elements that no bound can judge are not shown as held: a property that compares few of them is
/// inconclusive.
void CaseTally::conclude_on_elements(PropertyReport& report) const {
    const double most = options_.rounding.hidden_times_zero ? kMostGivenAway : kMostUnjudged;
    if (report.elements.share() <= most) return;
    report.status = PropertyReport::Status::inconclusive;
    report.note = fmt::format("the bounds say nothing of {:.0f} % of its elements, allowed: {:.0f}",
                              100 * report.elements.share(), 100 * most);
}

/// A case that the property does not apply to counts among those asked for, but not among those that
/// make it conclusive: where it applies rarely, more are drawn.
bool CaseTally::has_judged_enough() const {
    return judged_ + inapplicable + hardly_compared_ >= wanted_ && judged_ >= enough_;
}

/// Cases that the property does not apply to cost no call.
bool CaseTally::has_drawn_enough() const {
    constexpr std::int64_t kInapplicable = 8;  ///< so many cost as much as one that is judged
    return drawn - inapplicable + inapplicable / kInapplicable >= most_drawn_;
}

/// Of cases that are known to be taken: what is declined are the other calls of the property.
bool CaseTally::is_mostly_declined(const PropertyReport& so_far) const {
    return options_.survey && !options_.survey->scope.accepted().empty() &&
           drawn >= kConclusiveCases && so_far.declined > 4 * (judged_ + inapplicable) &&
           (property_.validation || others_declined > so_far.declined / 2);
}

/// So many cases were declined that waiting for an accepted one costs more than it shows.
bool CaseTally::is_never_taken(const PropertyReport& so_far) const {
    return options_.survey && judged_ == 0 && drawn >= 2 * kConclusiveCases &&
           so_far.declined == drawn;
}

/// A law of two operators, of which the library has one: a run with a time limit does not wait for it.
bool CaseTally::has_never_applied() const {
    constexpr std::int64_t kCases = 600;
    return wanted_ == 0 && inapplicable >= kCases && inapplicable == drawn;
}

}  // namespace attncheck::properties
