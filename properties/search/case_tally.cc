#include "properties/search/case_tally.h"

#include <algorithm>

#include "properties/report/conclusion.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kPlain = 12;  ///< of what people run, before others
/// Of the elements of a case. A bound that is as wide as the type says nothing.
constexpr double kMostUnjudged = 0.5;

/// Cases with a verdict that make a property conclusive: fewer where fewer were asked for.
std::int64_t needed_cases(const Property& property, const EngineOptions& options) {
    const std::int64_t wanted = wanted_cases(property, options);
    return wanted > 0 ? std::min(kConclusiveCases, wanted) : kConclusiveCases;
}

}  // namespace

void CaseTally::Counts::add(const Counts& other) {
    drawn += other.drawn;
    inapplicable += other.inapplicable;
    declined += other.declined;
    others_declined += other.others_declined;
    judged += other.judged;
    hardly_compared += other.hardly_compared;
}

CaseTally::CaseTally(const Property& property, const EngineOptions& options)
    : property_(property), options_(options) {}

void CaseTally::begin(const Portion& portion) {
    was_mostly_declined_ = was_mostly_declined_ || is_mostly_declined();
    before_ = all();
    now_ = {};
    wanted_ = portion.wanted;
    const std::int64_t needed = needed_cases(property_, options_);
    enough_ = wanted_ > 0 ? (needed + portion.of - 1) / portion.of : needed;
    shares_ = std::min(needed, shares_ + enough_);
    most_drawn_ = 2 * wanted_ + 4 * kConclusiveCases;
}

CaseTally::Counts CaseTally::all() const {
    Counts all = before_;
    all.add(now_);
    return all;
}

bool CaseTally::is_hardly_compared(const ElementCount& elements) { return elements.share() > kMostUnjudged; }

std::int64_t CaseTally::left(std::int64_t unlimited) const {
    if (wanted_ == 0) return unlimited;
    return std::max(wanted_ - now_.met(), enough_ - now_.judged);
}

std::int64_t CaseTally::plain_cases() const {
    return std::min<std::int64_t>(kPlain, wanted_ > 0 ? wanted_ / 4 : kPlain);
}

bool CaseTally::has_met(std::int64_t cases) const {
    const Counts counts = all();
    return (counts.met() >= cases && counts.judged >= std::min(shares_, cases)) || counts.drawn >= 4 * cases;
}

bool CaseTally::is_enough() const {
    return wanted_ > 0 && (has_judged_enough() || has_drawn_enough());
}

bool CaseTally::is_hopeless() const {
    return is_mostly_declined() || is_never_taken() || has_never_applied();
}

void CaseTally::conclude(PropertyReport& report, bool is_outside) const {
    fill(report.drawn, is_outside);
    report.drawn.needed = needed_cases(property_, options_);
    properties::conclude(report, shares_, most_unjudged(options_.rounding), options_.rule == nullptr);
}

void CaseTally::fill(DrawnCases& drawn, bool is_outside) const {
    const Counts counts = all();
    drawn.cases = counts.drawn;
    drawn.inapplicable = counts.inapplicable;
    drawn.hardly_compared = counts.hardly_compared;
    drawn.is_outside = is_outside;
    drawn.is_mostly_declined = was_mostly_declined_ || is_mostly_declined();
}

/// A case that the property does not apply to counts among those asked for, but not among those that
/// make it conclusive: where it applies rarely, more are drawn.
bool CaseTally::has_judged_enough() const { return now_.met() >= wanted_ && now_.judged >= enough_; }

/// Cases that the property does not apply to cost no call.
bool CaseTally::has_drawn_enough() const {
    constexpr std::int64_t kInapplicable = 8;  ///< so many cost as much as one that is judged
    return now_.drawn - now_.inapplicable + now_.inapplicable / kInapplicable >= most_drawn_;
}

/// Of cases that are known to be taken: what is declined are the other calls of the property. Where all are, a third
/// of the cases say so.
bool CaseTally::is_mostly_declined() const {
    const std::int64_t enough = now_.declined == now_.drawn ? kConclusiveCases / 3 : kConclusiveCases;
    return options_.survey && !options_.survey->scope.accepted().empty() && now_.drawn >= enough &&
           now_.declined > 4 * (now_.judged + now_.inapplicable) &&
           (property_.validation || now_.others_declined > now_.declined / 2);
}

/// So many cases were declined that waiting for an accepted one costs more than it shows.
bool CaseTally::is_never_taken() const {
    return options_.survey && now_.judged == 0 && now_.drawn >= 2 * kConclusiveCases && now_.declined == now_.drawn;
}

/// A law of two operators, of which the library has one: a run with a time limit does not wait for it.
bool CaseTally::has_never_applied() const {
    constexpr std::int64_t kCases = 600;
    return wanted_ == 0 && now_.inapplicable >= kCases && now_.inapplicable == now_.drawn;
}

}  // namespace attncheck::properties
