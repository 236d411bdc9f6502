// The steps of a run: a slice of a property's search, or the shrinking of one of its counterexamples. Which comes next, and what
// has come of each property, whoever takes the steps: this process (run.cc) or several (side_by_side.cc).
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/search/agenda.h"
#include "properties/search/clock.h"
#include "properties/search/findings.h"
#include "properties/search/progress.h"
#include "properties/search/rounds.h"
#include "properties/search/run.h"
#include "properties/search/searches.h"

namespace attncheck::properties {

/// With the catalogue's operators, and the features that a candidate declares.
OfAllOperators of_all_operators(const std::string& features);

/// A run's list of properties, and what has come of each.
class Run {
public:
    Run(const CandidateInfo& info, const VerifyOptions& options, const Clock& clock,
        int processes, RunReport& report, std::ostream& out, std::ostream* progress);

    /// Steps: a slice of property i is number i, shrinking one of its counterexamples is i + size.
    std::size_t end() const { return 2 * tasks_.size(); }
    bool is_shrinking(std::size_t step) const { return step >= tasks_.size(); }
    const RunTask& task(std::size_t step) const { return tasks_[property_of(step)]; }

    /// The next step of the process, or end().
    std::size_t next(int process);

    Slice slice(std::size_t i, int process) { return rounds_->slice(i, process, clock_.now()); }
    const Counterexample& to_shrink(std::size_t step) const { return *findings_->to_shrink(property_of(step)); }

    /// The operator that must be surveyed before the step; nullptr: none.
    const Operator* surveyed(std::size_t step) const { return task(step).surveyed(options_); }

    PropertyReport unfinished(std::size_t step) const;

    /// News of a property that goes on.
    void observe(std::size_t i, const PropertyReport& now);

    /// A slice came to its end.
    void finish(std::size_t i, const PropertyReport& one, bool is_over);

    void finish_shrinking(std::size_t step, const Counterexample& smallest);

    /// A property whose process is gone: with what it told, and for the reason given when that
    /// cannot be a verdict.
    void finish_without_answer(std::size_t step, const std::string& reason);

    /// The searches of a process that is gone.
    void forget(int process) { rounds_->lost(process); }

    void save() { findings_->save(); }

    /// The time counts from now on.
    void begin();

    /// Nothing is begun any more, and what goes on is stopped.
    bool is_ending() const { return clock_.interrupted() || stopped_ || is_past_end(); }

    /// Past the time limit and half of a tenth of it, which the last calls may take.
    bool is_past_end() const { return is_past(1.05); }
    /// Past all that a process may take to say what it has.
    bool is_past_grace() const { return is_past(1.1); }

    void stop() { stopped_ = true; }
    bool is_stopped() const { return stopped_; }

    /// Puts the reports in the order of the list, each operator's required classes behind it.
    void close();

private:
    /// The properties of the run, of a shard those that have a portion for it.
    void list_tasks();

    bool is_past(double limits) const;

    std::size_t property_of(std::size_t step) const { return step % tasks_.size(); }

    std::vector<const Property*> properties_of_tasks() const;

    /// Which counterexample is the first depends on the time in no run without a limit.
    double seconds_of_first_round() const;
    bool is_past_first_round() const;

    /// Counterexamples of a property one after the other: the smallest of one helps the next.
    std::optional<std::size_t> next_to_shrink() const;

    std::size_t begin_shrinking(std::size_t i);
    void stop_shrinking(std::size_t i);

    void finish_when_shrunk(std::size_t i);

    /// Of a property that did not come to its end: by the clock, by a signal, or because nobody was there to run it.
    std::optional<PropertyReport> left_at_the_end(std::size_t i);

    void take_over(std::size_t i);

    bool is_wanted(const Operator& op, const Property& property) const;

    bool classes_are_judged(const Operator& op) const;

    const CandidateInfo& info_;
    const VerifyOptions& options_;
    const Clock& clock_;
    RunReport& report_;
    std::ostream& out_;
    double start_, begun_;  ///< the limits count from the second
    int processes_;
    Progress progress_;
    std::optional<Findings> findings_;  ///< made when the list is
    std::optional<Rounds> rounds_;
    std::vector<RunTask> tasks_;
    std::vector<std::optional<PropertyReport>> done_;
    std::vector<bool> is_shrinking_;  ///< one of its counterexamples
    std::size_t implemented_ = 0;  ///< properties of operators that the library has
    int shrinking_ = 0;
    bool shrank_last_ = false, has_shrunk_ = false;
    bool stopped_ = false;  ///< at the first counterexample
};

/// Not one that only an earlier call or chance brings about: a property that calls twice may still
/// find it in a form that can be shrunk.
bool is_settled(const PropertyReport& report);

}  // namespace attncheck::properties
