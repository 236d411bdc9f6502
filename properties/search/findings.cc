#include "properties/search/findings.h"

#include <algorithm>
#include <ostream>
#include <stdexcept>

#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

constexpr double kNewsEvery = 0.2, kSaveEvery = 2;  ///< seconds

bool is_shrinking(const PropertyReport& report) {
    return !report.counterexamples.empty() && report.counterexamples.back().being_shrunk;
}

}  // namespace

bool Pace::passes(const PropertyReport& now, double time) {
    const bool has_more =
        now.counterexamples.size() != known_ || is_shrinking(now) != was_shrinking_;
    if (!has_more && last_ >= 0 && time - last_ < kNewsEvery) return false;
    last_ = time;
    known_ = now.counterexamples.size();
    was_shrinking_ = is_shrinking(now);
    return true;
}

Findings::Findings(std::size_t properties, const VerifyOptions& options, const Clock& clock,
                   RunReport& report, std::ostream& out)
    : options_(options),
      clock_(clock),
      report_(report),
      out_(out),
      start_(clock.now()),
      properties_(properties) {}

bool Findings::has_more(std::size_t i, const PropertyReport& now) const {
    return now.counterexamples.size() > properties_[i].printed + (is_shrinking(now) ? 1 : 0);
}

void Findings::update(std::size_t i, const Operator& op, const PropertyReport& now) {
    OfProperty& known = properties_[i];
    const bool has_news =
        !known.report || known.report->counterexamples.size() != now.counterexamples.size() ||
        is_shrinking(*known.report) != is_shrinking(now);
    known.report = now;
    report_.duration_s = clock_.now() - start_;
    for (; has_more(i, now); ++known.printed) {
        show(now, now.counterexamples[known.printed]);
        out_.flush();
        keep(op, now.property, now.counterexamples[known.printed]);
    }
    const bool is_found = has_news && !now.counterexamples.empty();
    if (is_found || clock_.now() - saved_ > kSaveEvery) save();
}

/// In full when it is the first of its cause.
void Findings::show(const PropertyReport& property, const Counterexample& found) {
    shown_.push_back({property.op, property.property, found.failure, found.message, print(found.spec),
                      found.tier, {}, {}});
    const std::size_t own = shown_.size() - 1;
    // Whether a library rejects anything is known at the end of a run; until then one illegal call
    // that it accepts stands for the others.
    for (const Cause& cause : causes_of(shown_, true))
        if (std::ranges::find(cause.failures, own) != cause.failures.end() && cause.failures.size() > 1)
            return print_another(out_, property, found);
    print_counterexample(out_, report_, property, found);
}

void Findings::keep(const Operator& op, const std::string& property, const Counterexample& found) {
    if (!options_.corpus) return;
    try {
        options_.corpus->add(op, property, found.spec);
    } catch (const std::exception& e) {  // the run goes on: its report has the case too
        if (std::ranges::find(report_.notes, e.what()) == report_.notes.end())
            report_.notes.emplace_back(e.what());
    }
}

void Findings::close(std::size_t i) {
    properties_[i].is_closed = true;
    save();
}

void Findings::take_over(std::size_t i, const PropertyReport& report) {
    properties_[i] = {report, report.counterexamples.size(), true};
}

std::optional<PropertyReport> Findings::left_by(std::size_t i) const {
    std::optional<PropertyReport> left = properties_[i].report;
    if (!left || properties_[i].is_closed) return left;
    left->interrupted = true;
    if (!left->counterexamples.empty())
        left->status = PropertyReport::Status::falsified;
    else if (left->cases + left->replayed == 0)
        left->status = PropertyReport::Status::declined;
    for (Counterexample& found : left->counterexamples) found.being_shrunk = false;
    return left;
}

std::int64_t Findings::cases() const {
    std::int64_t sum = 0;
    for (const OfProperty& one : properties_)
        if (one.report) sum += one.report->cases + one.report->replayed + one.report->declined;
    return sum;
}

void Findings::save() {
    if (!options_.save) return;
    saved_ = clock_.now();
    RunReport now = report_;
    now.interrupted = true;  // unless a later one takes its place
    now.duration_s = clock_.now() - start_;
    for (std::size_t i = 0; i < properties_.size(); ++i)
        if (std::optional<PropertyReport> one = left_by(i))
            now.properties.push_back(std::move(*one));
    options_.save(now);
}

}  // namespace attncheck::properties
