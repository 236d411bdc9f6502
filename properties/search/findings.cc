#include "properties/search/findings.h"

#include <algorithm>
#include <ostream>
#include <stdexcept>

#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

constexpr double kNewsEvery = 0.2, kSaveEvery = 0.5;  ///< seconds

/// How far a search came.
std::int64_t met_by(const PropertyReport& report) {
    return report.cases + report.replayed + report.declined;
}

bool is_shrinking(const PropertyReport& report) {
    return !report.counterexamples.empty() && report.counterexamples.back().being_shrunk;
}

/// An illegal call that the library did not reject: a library without checks has one for every argument.
bool is_accepted_call(const Counterexample& found) {
    return !found.spec.edits.empty() && found.tier == Tier::validation;
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

bool Findings::is_news(std::size_t i, const Counterexample& found) const {
    const auto shown = properties_[i].shown.find(found.failure);
    return shown == properties_[i].shown.end() || (!shown->second && !found.being_shrunk);
}

bool Findings::has_more(std::size_t i, const PropertyReport& now) const {
    return std::ranges::any_of(now.counterexamples,
                               [&](const Counterexample& found) { return is_news(i, found); });
}

void Findings::update(std::size_t i, const Operator& op, PropertyReport now) {
    OfProperty& known = properties_[i];
    if (known.report) {
        for (const Counterexample& before : known.report->counterexamples) {
            const auto same = std::ranges::find(now.counterexamples, before.failure, &Counterexample::failure);
            if (same == now.counterexamples.end())
                now.counterexamples.push_back(before);
            else if (same->being_shrunk && !before.being_shrunk)
                *same = before;
        }
        if (met_by(now) < met_by(*known.report)) {  // its search began anew in another process
            PropertyReport further = *known.report;
            further.counterexamples = std::move(now.counterexamples);
            if (now.status == PropertyReport::Status::error) {
                further.status = now.status;
                further.note = now.note;
            }
            now = std::move(further);
        }
    }
    if (!now.counterexamples.empty()) now.status = PropertyReport::Status::falsified;
    const bool has_news = has_more(i, now);
    report_.duration_s = clock_.now() - start_;
    for (const Counterexample& found : now.counterexamples) {
        if (!is_news(i, found)) continue;
        known.shown[found.failure] = !found.being_shrunk;
        show(now, found);
        out_.flush();
        if (!found.being_shrunk) keep(op, now.property, found);
    }
    known.report = std::move(now);
    if (has_news || clock_.now() - saved_ > kSaveEvery) save();
}

void Findings::shrunk(std::size_t i, const Operator& op, const Counterexample& smallest) {
    PropertyReport now = *properties_[i].report;
    for (Counterexample& found : now.counterexamples)
        if (found.failure == smallest.failure) found = smallest;
    properties_[i].report->counterexamples.clear();
    update(i, op, std::move(now));
}

const Counterexample* Findings::to_shrink(std::size_t i) const {
    if (!properties_[i].report) return nullptr;
    const auto& all = properties_[i].report->counterexamples;
    const auto found = std::ranges::find(all, true, &Counterexample::being_shrunk);
    return found == all.end() ? nullptr : &*found;
}

const PropertyReport* Findings::report_of(std::size_t i) const {
    return properties_[i].report ? &*properties_[i].report : nullptr;
}

bool Findings::is_first_of_its_cause(std::vector<Failure>& shown, const PropertyReport& property,
                                     const Counterexample& found) const {
    shown.push_back({property.op, property.property, found.failure, message_of(found), print(found.spec),
                     found.tier, {}, {}});
    const std::size_t own = shown.size() - 1;
    // Whether a library rejects anything is known at the end of a run; until then one illegal call
    // that it accepts stands for the others.
    return std::ranges::none_of(causes_of(shown, true), [&](const Cause& cause) {
        return cause.failures.size() > 1 &&
               std::ranges::find(cause.failures, own) != cause.failures.end();
    });
}

/// In a line when it is found, in full when it is shrunk; others of its cause in a line then.
void Findings::show(const PropertyReport& property, const Counterexample& found) {
    if (found.being_shrunk) {
        if (is_first_of_its_cause(announced_, property, found)) print_found(out_, property, found);
    } else if (is_first_of_its_cause(shown_, property, found)) {
        print_counterexample(out_, report_, property, found);
    } else if (!is_accepted_call(found)) {  // of those one stands for all, until the end says more
        print_another(out_, property, found);
    }
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
    properties_[i] = {report, {}, true};
    for (const Counterexample& found : report.counterexamples)
        properties_[i].shown[found.failure] = true;
}

void Findings::go_on_with(std::size_t i, const PropertyReport& report) {
    take_over(i, report);
    properties_[i].is_closed = false;
    properties_[i].report->go_on_shrinking();
    for (const Counterexample& found : properties_[i].report->counterexamples)
        properties_[i].shown[found.failure] = !found.being_shrunk;
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
        if (one.report) sum += met_by(*one.report);
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
