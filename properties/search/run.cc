#include "properties/search/run.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "properties/candidate/candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/report/json.h"
#include "properties/report/table.h"
#include "properties/search/agenda.h"
#include "properties/search/classes.h"
#include "properties/search/findings.h"
#include "properties/search/parallel.h"
#include "properties/search/portions.h"
#include "properties/search/progress.h"
#include "properties/search/rounds.h"
#include "properties/search/searches.h"

namespace attncheck::properties {
namespace {

/// A run's list of properties, and what has come of each.
class Run {
public:
    Run(const CandidateInfo& info, const VerifyOptions& options, const Clock& clock,
        int processes, RunReport& report, std::ostream& out, std::ostream* progress)
        : info_(info),
          options_(options),
          clock_(clock),
          report_(report),
          out_(out),
          start_(clock.now()),
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
            }
            if (done_[i]) rounds_->leave_out(i);
        }
    }

    /// Steps: a slice of property i is number i, shrinking one of its counterexamples is i + size.
    std::size_t end() const { return 2 * tasks_.size(); }
    bool is_shrinking(std::size_t step) const { return step >= tasks_.size(); }
    const RunTask& task(std::size_t step) const { return tasks_[property_of(step)]; }

    /// The next step of the process, or end().
    std::size_t next(int process) {
        if (is_ending() || is_past(1)) return end();
        const bool may_shrink = processes_ > 1 ? shrinking_ < processes_ / 2
                                               : rounds_->is_first_over() && !shrank_last_;
        if (may_shrink)
            if (const auto i = next_to_shrink()) return begin_shrinking(*i);
        if (const auto i = rounds_->next(process)) {
            shrank_last_ = false;
            return *i;
        }
        if (const auto i = next_to_shrink()) return begin_shrinking(*i);
        return end();
    }

    Slice slice(std::size_t i, int process) { return rounds_->slice(i, process, clock_.now()); }
    /// What a step of shrinking begins with.
    const Counterexample& to_shrink(std::size_t step) const { return *findings_->to_shrink(property_of(step)); }

    /// The operator that must be surveyed before the step; nullptr: none.
    const Operator* surveyed(std::size_t step) const { return task(step).surveyed(options_); }

    /// The report of a property that could not be judged.
    PropertyReport unfinished(std::size_t step) const {
        PropertyReport one;
        one.op = tasks_[property_of(step)].op->name();
        one.property = tasks_[property_of(step)].property->name;
        one.status = PropertyReport::Status::error;
        return one;
    }

    /// News of a property that goes on.
    void observe(std::size_t i, const PropertyReport& now) {
        if (findings_->has_more(i, now)) progress_.erase();
        findings_->update(i, *tasks_[i].op, now);
        progress_.show(now, i, tasks_.size(), options_.engine.cases,
                       options_.total_seconds > 0 ? start_ + options_.total_seconds : 0,
                       findings_->cases());
    }

    /// A slice came to its end.
    void finish(std::size_t i, const PropertyReport& one, bool is_over) {
        observe(i, one);
        if (!one.taken.text.empty()) report_.taken[one.op] = one.taken;
        rounds_->came_back(i, one.cases + one.declined, one.seconds, is_over);
        if (is_over) finish_when_shrunk(i);
    }

    void finish_shrinking(std::size_t step, const Counterexample& smallest) {
        const std::size_t i = property_of(step);
        --shrinking_;
        is_shrinking_[i] = false;
        progress_.erase();
        findings_->shrunk(i, *tasks_[i].op, smallest);
        if (!rounds_->goes_on(i)) finish_when_shrunk(i);
    }

    /// A property whose process is gone: with what it told, and for the reason given when that
    /// cannot be a verdict.
    void finish_without_answer(std::size_t step, const std::string& reason) {
        const std::size_t i = property_of(step);
        if (is_shrinking(step)) {
            Counterexample left = *findings_->to_shrink(i);
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

    /// The searches of a process that is gone.
    void forget(int process) { rounds_->lost(process); }

    void save() { findings_->save(); }

    /// Nothing is begun any more, and what goes on is stopped.
    bool is_ending() const { return clock_.interrupted() || stopped_ || is_past_end(); }

    /// Past the time limit and half of a tenth of it, which the last calls may take.
    bool is_past_end() const { return is_past(1.05); }
    /// Past all that a process may take to say what it has.
    bool is_past_grace() const { return is_past(1.1); }

    void stop() { stopped_ = true; }
    bool is_stopped() const { return stopped_; }

    /// Puts the reports in the order of the list, each operator's required classes behind it.
    void close() {
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

private:
    /// The properties of the run, of a shard those that have a portion for it.
    void list_tasks() {
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

    bool is_past(double limits) const {
        return options_.total_seconds > 0 &&
               clock_.now() > start_ + limits * options_.total_seconds;
    }

    std::size_t property_of(std::size_t step) const { return step % tasks_.size(); }

    std::vector<const Property*> properties_of_tasks() const {
        std::vector<const Property*> all;
        for (const RunTask& task : tasks_) all.push_back(task.property);
        return all;
    }

    /// Which counterexample is the first depends on the time in no run without a limit.
    double seconds_of_first_round() const {
        constexpr double kFirstRound = 10;
        return options_.stop_at_first && options_.total_seconds <= 0 ? 0 : kFirstRound;
    }

    /// Counterexamples of a property one after the other: the smallest of one helps the next.
    std::optional<std::size_t> next_to_shrink() const {
        for (std::size_t i = 0; i < tasks_.size(); ++i)
            if (!is_shrinking_[i] && !options_.stop_at_first && findings_->to_shrink(i)) return i;
        return std::nullopt;
    }

    std::size_t begin_shrinking(std::size_t i) {
        ++shrinking_;
        shrank_last_ = true;
        is_shrinking_[i] = true;
        return tasks_.size() + i;
    }

    void finish_when_shrunk(std::size_t i) {
        if (findings_->to_shrink(i)) return;
        findings_->close(i);
        done_[i] = *findings_->report_of(i);
    }

    /// Of a property that did not come to its end: by the clock, by a signal, or because nobody was there to run it.
    std::optional<PropertyReport> left_at_the_end(std::size_t i) {
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

    void take_over(std::size_t i) {
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

    bool is_wanted(const Operator& op, const Property& property) const {
        if (!is_chosen(options_.properties, property.name)) return false;
        if (property.validation && !options_.validation) return false;
        if (property.large && options_.properties.empty()) return false;
        return !options_.engine.replay_only ||
               (options_.corpus && !options_.corpus->cases_of(op, property).empty());
    }

    bool classes_are_judged(const Operator& op) const {
        return options_.properties.empty() && op.implemented_by(info_) && !clock_.interrupted() &&
               !options_.engine.replay_only && !stopped_;
    }

    const CandidateInfo& info_;
    const VerifyOptions& options_;
    const Clock& clock_;
    RunReport& report_;
    std::ostream& out_;
    double start_;
    int processes_;
    Progress progress_;
    std::optional<Findings> findings_;  ///< made when the list is
    std::optional<Rounds> rounds_;
    std::vector<RunTask> tasks_;
    std::vector<std::optional<PropertyReport>> done_;
    std::vector<bool> is_shrinking_;  ///< one of its counterexamples
    int shrinking_ = 0;
    bool shrank_last_ = false;
    bool stopped_ = false;  ///< at the first counterexample
};

/// Not one that only an earlier call or chance brings about: a property that calls twice may still
/// find it in a form that can be shrunk.
bool is_settled(const PropertyReport& report) {
    return std::any_of(report.counterexamples.begin(), report.counterexamples.end(),
                       [](const Counterexample& found) { return found.repeatable; });
}

}  // namespace

std::vector<RunReport::Source> sources_of(const Operator& op, const Candidate& candidate) {
    std::vector<RunReport::Source> out;
    if (!op.is_composition()) return out;
    for (const std::string& entry : op.entry_points())
        out.push_back({op.name(), entry, candidate.implementation_of(entry)});
    return out;
}

void note_sources(const Candidate& candidate, const VerifyOptions& options, RunReport& report) {
    for (const auto& op : operators())
        if (is_chosen(options.operators, op->name()) && op->implemented_by(candidate.info()))
            std::ranges::copy(sources_of(*op, candidate), std::back_inserter(report.sources));
}

bool is_chosen(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

void verify(Candidate& candidate, const VerifyOptions& options, const Clock& clock,
            RunReport& report, std::ostream& out, std::ostream* progress) {
    const CandidateInfo info = candidate.info();
    note_sources(candidate, options, report);
    Run run(info, options, clock, 1, report, out, progress);
    Searches searches(candidate, options, clock, missing_outputs(options.engine.features, operators()));
    Pace pace;
    run.save();
    constexpr int kProcess = 0;
    for (std::size_t step = run.next(kProcess); step < run.end(); step = run.next(kProcess)) {
        if (run.is_shrinking(step)) {
            run.finish_shrinking(step, searches.shrink(run.task(step), run.to_shrink(step)));
            continue;
        }
        const auto [one, is_over] =
            searches.search(run.task(step), run.slice(step, kProcess), [&](const PropertyReport& now) {
                if (pace.passes(now, clock.now())) run.observe(step, now);
            });
        run.finish(step, one, is_over);
        if (options.stop_at_first && is_settled(one)) run.stop();
    }
    run.close();
}

namespace {

/// What a process of a run is asked.
struct RunQuestion {
    std::size_t step = 0;
    Slice slice;
    std::string found;   ///< report with the counterexample to shrink, in one line
    std::string survey;  ///< of the step's operator
};

std::string to_text(const RunQuestion& question) {
    return fmt::format("{} {} {}\n{}\n{}", question.step, question.slice.cases, question.slice.seconds,
                       question.found, question.survey);
}

RunQuestion run_question_from(const std::string& text) {
    RunQuestion question;
    std::istringstream in(text);
    in >> question.step >> question.slice.cases >> question.slice.seconds;
    in.ignore();
    std::getline(in, question.found);
    question.survey.assign(std::istreambuf_iterator<char>(in), {});
    return question;
}

/// In front of the report of a slice: whether the search needs another one.
constexpr char kOver = 'o', kGoesOn = 'g';

/// Empty when it could not be made: then each process tries, and says why it cannot.
std::string own_survey(const Operator& op, Searches& searches) {
    try {
        return to_text(searches.survey_of(op));
    } catch (const std::exception&) {
        return {};
    }
}

/// The answer of a process. What it throws ends the process.
std::string answer_to(const std::string& text, const Run& run, const Clock& clock,
                      const VerifyOptions& options, Searches& searches, const Processes::Tell& tell) {
    const RunQuestion question = run_question_from(text);
    if (question.step >= run.end()) return own_survey(*run.surveyed(question.step - run.end()), searches);
    const RunTask& task = run.task(question.step);
    if (const Operator* op = task.surveyed(options)) searches.tell_survey(*op, question.survey);
    if (run.is_shrinking(question.step)) {
        PropertyReport alone = property_from_text(question.found, schemas());
        alone.counterexamples = {searches.shrink(task, alone.counterexamples.front())};
        return property_to_text(alone);
    }
    const CaseObserver on_case = [&, pace = Pace()](const PropertyReport& now) mutable {
        if (pace.passes(now, clock.now())) tell(property_to_text(now));
    };
    try {
        const auto [report, is_over] = searches.search(task, question.slice, on_case);
        return (is_over ? kOver : kGoesOn) + property_to_text(report);
    } catch (const Stopped&) {
        PropertyReport none = run.unfinished(question.step);
        none.status = PropertyReport::Status::inconclusive;
        return kOver + property_to_text(none);
    } catch (const std::exception& e) {  // the library is gone before its first case
        PropertyReport none = run.unfinished(question.step);
        none.note = e.what();
        return kOver + property_to_text(none);
    }
}

/// A report with one counterexample alone.
std::string alone_as_text(PropertyReport report, const Counterexample& found) {
    report.counterexamples = {found};
    return property_to_text(report);
}

}  // namespace

void verify_side_by_side(const CandidateInfo& info,
                         const std::function<std::unique_ptr<Candidate>()>& open, int processes,
                         const VerifyOptions& options, const Clock& clock, RunReport& report,
                         std::ostream& out, std::ostream* progress) {
    Run run(info, options, clock, processes, report, out, progress);
    Processes pool(processes, [&]() -> Processes::Serve {
        const std::shared_ptr<Candidate> candidate = open();
        const auto searches = std::make_shared<Searches>(
            *candidate, options, clock, missing_outputs(options.engine.features, operators()));
        return [&, candidate, searches](const std::string& question, const Processes::Tell& tell) {
            return answer_to(question, run, clock, options, *searches, tell);
        };
    });
    run.save();
    constexpr double kGrace = 0.5;  ///< seconds in which a process that was told to stop answers
    int asks = 0;  // the process that has nothing to do
    Agenda agenda({run.end(), [&] { return run.next(asks); },
                   [&](std::size_t step) { return run.surveyed(step); }});
    const auto ask_all_idle = [&] {
        bool has_asked = false;
        for (const int process : pool.idle()) {
            asks = process;
            const auto question = agenda.next();
            if (!question) continue;
            RunQuestion whole{question->number, {}, {}, question->survey};
            if (!question->is_survey && run.is_shrinking(question->number))
                whole.found = alone_as_text(run.unfinished(question->number), run.to_shrink(question->number));
            else if (!question->is_survey)
                whole.slice = run.slice(question->number, process);
            pool.ask(question->number, to_text(whole), process);
            has_asked = true;
        }
        return has_asked;
    };
    std::optional<double> told;
    for (;;) {
        while (!run.is_ending() && ask_all_idle()) {}
        if (!pool.any_busy()) break;
        // A terminal signals all processes; `kill` only this one.
        if (run.is_ending() && !told) {
            pool.signal(SIGINT);
            told = clock.now();
        }
        if (told && (clock.now() - *told > kGrace || run.is_past_grace())) pool.give_up();
        Processes::Answer answer;
        if (!pool.wait(0.1, answer)) continue;
        if (answer.lost) run.forget(answer.process);
        if (agenda.is_survey(answer.number)) {
            agenda.learned(answer.number, answer.lost ? "" : answer.text);
            continue;
        }
        if (answer.lost) {
            run.finish_without_answer(answer.number, answer.why);
            continue;
        }
        if (run.is_shrinking(answer.number)) {
            run.finish_shrinking(answer.number,
                                 property_from_text(answer.text, schemas()).counterexamples.front());
            continue;
        }
        const bool is_over = answer.is_final && answer.text.front() == kOver;
        const PropertyReport one =
            property_from_text(answer.is_final ? answer.text.substr(1) : answer.text, schemas());
        if (!answer.is_final) {
            run.observe(answer.number, one);
            continue;
        }
        run.finish(answer.number, one, is_over);
        if (options.stop_at_first && is_settled(one)) run.stop();
    }
    run.close();
}

}  // namespace attncheck::properties
