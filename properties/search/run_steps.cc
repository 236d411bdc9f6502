#include "properties/search/run_steps.h"

#include <algorithm>
#include <ostream>

#include "properties/operators/catalogue.h"
#include "properties/report/table.h"
#include "properties/search/classes.h"
#include "properties/search/portions.h"

namespace attncheck::properties {

OfAllOperators of_all_operators(const std::string& features) {
    return {missing_outputs(features, operators()), declared_cases(features, operators()),
            companion_calls};
}

Run::Run(const CandidateInfo& info, const VerifyOptions& options, const Clock& clock,
    int processes, RunReport& report, std::ostream& out, std::ostream* progress)
    : info_(info),
      options_(options),
      clock_(clock),
      report_(report),
      out_(out),
      start_(clock.now()),
      begun_(start_),
      processes_(processes),
      progress_(progress, clock) {
    list_tasks();
    done_.resize(tasks_.size());
    is_shrinking_.resize(tasks_.size());
    findings_.emplace(tasks_.size(), options, clock, report, out);
    rounds_.emplace(properties_of_tasks(), Rounds::Limits{start_, options.total_seconds,
                                                          seconds_of_first_round(), processes});
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
        take_over(i);
        if (!tasks_[i].op->implemented_by(info)) {
            done_[i] = unfinished(i);
            done_[i]->status = PropertyReport::Status::not_implemented;
        } else {
            ++implemented_;
        }
        if (done_[i]) rounds_->leave_out(i);
    }
}

void Run::begin() {
    begun_ = clock_.now();
    rounds_->begin(begun_);
}

std::size_t Run::next(int process) {
    if (is_ending() || is_past(1)) return end();
    const bool may_shrink = processes_ > 1 ? shrinking_ < processes_ / 2
                                           : !has_shrunk_ || ((rounds_->is_first_over() || is_past_first_round()) && !shrank_last_);
    if (may_shrink)
        if (const auto i = next_to_shrink()) return begin_shrinking(*i);
    if (const auto i = rounds_->next(process)) {
        shrank_last_ = false;
        return *i;
    }
    if (const auto i = next_to_shrink()) return begin_shrinking(*i);
    return end();
}

PropertyReport Run::unfinished(std::size_t step) const {
    PropertyReport one;
    one.op = tasks_[property_of(step)].op->name();
    one.property = tasks_[property_of(step)].property->name;
    one.status = PropertyReport::Status::error;
    return one;
}

void Run::observe(std::size_t i, const PropertyReport& now) {
    if (findings_->has_more(i, now)) progress_.erase();
    findings_->update(i, *tasks_[i].op, now);
    progress_.show(now, implemented_, options_.engine.cases,
                   options_.total_seconds > 0 ? begun_ + options_.total_seconds : 0,
                   findings_->cases());
}

void Run::finish(std::size_t i, const PropertyReport& one, bool is_over) {
    observe(i, one);
    if (!one.taken.text.empty()) report_.taken[one.op] = one.taken;
    rounds_->came_back(i, one.cases + one.declined, one.seconds, is_over);
    if (is_over) finish_when_shrunk(i);
}

void Run::finish_shrinking(std::size_t step, const Counterexample& smallest) {
    const std::size_t i = property_of(step);
    progress_.erase();
    findings_->shrunk(i, *tasks_[i].op, smallest);
    stop_shrinking(i);
}

void Run::stop_shrinking(std::size_t i) {
    --shrinking_;
    is_shrinking_[i] = false;
    if (!rounds_->goes_on(i)) finish_when_shrunk(i);
}

void Run::finish_without_answer(std::size_t step, const std::string& reason) {
    const std::size_t i = property_of(step);
    if (is_shrinking(step)) {
        const Counterexample* const waiting = findings_->to_shrink(i);
        if (!waiting) return stop_shrinking(i);  // the search of the property came to its end with it
        Counterexample left = *waiting;
        left.being_shrunk = false;
        left.certificate += ": " + (is_ending() ? "the run ended" : reason);
        return finish_shrinking(step, left);
    }
    const std::optional<PropertyReport> left = findings_->left_by(i);
    PropertyReport one = left.value_or(unfinished(i));
    if (!left && is_ending()) {
        one.status = PropertyReport::Status::inconclusive;
        one.note = "the run ended before its first case did";
    }
    if (one.status != PropertyReport::Status::falsified && !is_ending()) {
        one.status = PropertyReport::Status::error;
        one.note = reason;
    }
    finish(i, one, true);
}

void Run::close() {
    progress_.erase();  // what was not shrunk to its end is shown now
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
        if (!done_[i]) done_[i] = left_at_the_end(i);
        if (done_[i]) report_.properties.push_back(std::move(*done_[i]));
        const bool last_of_operator =
            i + 1 == tasks_.size() || tasks_[i + 1].op != tasks_[i].op;
        if (last_of_operator) count_pairs(*tasks_[i].op, report_);
        if (!last_of_operator || !classes_are_judged(*tasks_[i].op)) continue;
        judge_classes(*tasks_[i].op, report_);
        judge_clauses(*tasks_[i].op, report_);
    }
    report_.duration_s = clock_.now() - start_;
    report_.interrupted = clock_.interrupted();
}

void Run::list_tasks() {
    EngineOptions engine = options_.engine;
    engine.dealt_from = 0;
    for (const auto& op : operators()) {
        if (!is_chosen(options_.operators, op->name())) continue;
        for (const Property& property : op->properties()) {
            if (!is_wanted(*op, property)) continue;
            if (engine.shards > 1) report_.agenda.push_back(op->name() + "." + property.name);
            const bool is_implemented = op->implemented_by(info_);
            if (!is_implemented || !own_portions(property, engine).empty() || has_first_portion(engine))
                tasks_.push_back({op.get(), &property, engine.dealt_from});
            if (is_implemented) engine.dealt_from = (engine.dealt_from + portions_of(property, engine)) % engine.shards;
        }
    }
}

bool Run::is_past(double limits) const {
    return options_.total_seconds > 0 &&
           clock_.now() > begun_ + limits * options_.total_seconds;
}

std::vector<const Property*> Run::properties_of_tasks() const {
    std::vector<const Property*> all;
    for (const RunTask& task : tasks_) all.push_back(task.property);
    return all;
}

/// Of a slow candidate some laws wait for their first slice until the end.
bool Run::is_past_first_round() const {
    return seconds_of_first_round() > 0 && clock_.now() > begun_ + seconds_of_first_round();
}

double Run::seconds_of_first_round() const {
    constexpr double kFirstRound = 10;
    return options_.stop_at_first && options_.total_seconds <= 0 ? 0 : kFirstRound;
}

std::optional<std::size_t> Run::next_to_shrink() const {
    for (std::size_t i = 0; i < tasks_.size(); ++i)
        if (!is_shrinking_[i] && !options_.stop_at_first && findings_->to_shrink(i)) return i;
    return std::nullopt;
}

std::size_t Run::begin_shrinking(std::size_t i) {
    ++shrinking_;
    shrank_last_ = has_shrunk_ = true;  // the first one at once: somebody waits for it
    is_shrinking_[i] = true;
    return tasks_.size() + i;
}

void Run::finish_when_shrunk(std::size_t i) {
    if (findings_->to_shrink(i)) return;
    findings_->close(i);
    done_[i] = *findings_->report_of(i);
}

std::optional<PropertyReport> Run::left_at_the_end(std::size_t i) {
    const bool is_cut = clock_.interrupted() || stopped_;
    const PropertyReport* known = findings_->report_of(i);
    if (!known && is_cut) return std::nullopt;
    PropertyReport one = known ? *known : unfinished(i);
    for (Counterexample& found : one.counterexamples) found.being_shrunk = false;
    if (is_cut) {
        if (clock_.interrupted()) one = *findings_->left_by(i);
        one.interrupted = true;
    } else if (!known) {
        if (is_past(1)) one.status = PropertyReport::Status::inconclusive;
        one.note = is_past(1) ? "no time was left to begin it" : "no process was left to run it";
    } else if (!is_past(1)) {
        one.status = PropertyReport::Status::error;
        one.note = "no process was left to run it to its end";
    }
    findings_->update(i, *tasks_[i].op, one);
    return one;
}

void Run::take_over(std::size_t i) {
    const auto is_of_task = [&](const PropertyReport& p) {
        return p.op == tasks_[i].op->name() && p.property == tasks_[i].property->name;
    };
    const auto begun = std::ranges::find_if(options_.begun, is_of_task);
    if (begun != options_.begun.end()) {
        findings_->go_on_with(i, *begun);
        tasks_[i].begun = &*begun;
    }
    const auto one = std::ranges::find_if(options_.finished, is_of_task);
    if (one == options_.finished.end()) return;
    findings_->take_over(i, *one);
    if (!one->taken.text.empty()) report_.taken[one->op] = one->taken;
    done_[i] = *one;
}

bool Run::is_wanted(const Operator& op, const Property& property) const {
    if (!is_chosen(options_.properties, property.name)) return false;
    if (property.validation && !options_.validation) return false;
    if (property.large && options_.properties.empty()) return false;
    return !options_.engine.replay_only || !given_cases(options_, op, property).empty();
}

bool Run::classes_are_judged(const Operator& op) const {
    return options_.properties.empty() && op.implemented_by(info_) && !clock_.interrupted() &&
           !options_.engine.replay_only && !stopped_;
}

bool is_settled(const PropertyReport& report) {
    return std::any_of(report.counterexamples.begin(), report.counterexamples.end(),
                       [](const Counterexample& found) { return found.repeatable; });
}

}  // namespace attncheck::properties
