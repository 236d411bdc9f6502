#include "properties/search/run.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
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

namespace attncheck::properties {
namespace {

/// Rewrites one terminal line at most ten times a second.
class Progress {
public:
    Progress(std::ostream* out, const Clock& clock)
        : out_(out), clock_(clock), start_(clock.now()) {}
    ~Progress() { erase(); }
    void show(const PropertyReport& now, std::size_t index, std::size_t total, std::int64_t wanted,
              double deadline, std::int64_t cases) {
        cases_ = cases;
        const double time = clock_.now();
        if (!out_ || time - last_ < 0.1) return;
        last_ = time;
        const double rate = static_cast<double>(cases_) / std::max(time - start_, 1e-9);
        std::string left;
        if (deadline > 0)
            left = fmt::format(", {:.0f} s left", std::max(0.0, deadline - time));
        else if (wanted > 0)
            left = fmt::format(
                ", about {:.0f} s left",
                std::max(0.0,
                         static_cast<double>(wanted * static_cast<std::int64_t>(total) - cases_) /
                             std::max(rate, 1e-9)));
        *out_ << fmt::format("\r\x1b[K[{}/{}] {}.{}  {} cases, {:.0f} cases/s{}", index + 1, total,
                             now.op, now.property, cases_, rate, left)
              << std::flush;
    }
    void erase() {
        if (out_) *out_ << "\r\x1b[K" << std::flush;
    }

private:
    std::ostream* out_;
    const Clock& clock_;
    double start_, last_ = 0;
    std::int64_t cases_ = 0;
};

/// What was learned of each operator, in one process: told by another one, or asked for when its
/// first property is run.
class Surveys {
public:
    void tell(const Operator& op, const std::string& text, const EngineOptions& options) {
        if (!text.empty() && !surveys_.contains(op.name()))
            surveys_.emplace(op.name(),
                             survey_from(text, op, features_of(options.features, op.name()),
                                         options.profile));
    }
    const Survey& of(const Operator& op, Candidate& candidate, const EngineOptions& options) {
        const auto known = surveys_.find(op.name());
        return known != surveys_.end()
                   ? known->second
                   : surveys_
                         .emplace(op.name(), survey(op, candidate, options.seed, options.profile,
                                                    features_of(options.features, op.name())))
                         .first->second;
    }

private:
    std::map<std::string, Survey> surveys_;
};

/// A run's list of properties, and what has come of each.
class Run {
public:
    Run(const CandidateInfo& info, const VerifyOptions& options, const Clock& clock,
        RunReport& report, std::ostream& out, std::ostream* progress)
        : info_(info),
          options_(options),
          clock_(clock),
          report_(report),
          out_(out),
          start_(clock.now()),
          progress_(progress, clock) {
        for (const auto& op : operators()) {
            if (!is_chosen(options.operators, op->name())) continue;
            for (const Property& property : op->properties())
                if (is_wanted(*op, property)) tasks_.push_back({op.get(), &property});
        }
        done_.resize(tasks_.size());
        findings_.emplace(tasks_.size(), options, clock, report, out);
        order_tasks();
        for (std::size_t i = 0; i < tasks_.size(); ++i) {
            take_over(i);
            if (tasks_[i].op->implemented_by(info)) continue;
            done_[i] = unfinished(i);
            done_[i]->status = PropertyReport::Status::not_implemented;
        }
    }

    /// Steps: the run of property i is number i, a first look at it is number i + size.
    std::size_t end() const { return 2 * tasks_.size(); }
    bool is_first_look(std::size_t step) const { return step >= tasks_.size(); }
    /// The next step, or end().
    std::size_t next() {
        while (started_ < order_.size() && done_[property_of(order_[started_])]) ++started_;
        return started_ < order_.size() ? order_[started_++] : end();
    }

    /// The operator that must be surveyed before the step; nullptr: none.
    const Operator* surveyed(std::size_t step) const {
        const Operator* op = tasks_[property_of(step)].op;
        return options_.engine.replay_only || op->is_composition() ? nullptr : op;
    }
    void tell_survey(std::size_t step, const std::string& text, Surveys& surveys) const {
        if (const Operator* op = surveyed(step)) surveys.tell(*op, text, options_.engine);
    }
    const Survey& survey_for(std::size_t step, Candidate& candidate, Surveys& surveys) const {
        return surveys.of(*surveyed(step), candidate, options_.engine);
    }

    /// The report of a property that could not be judged.
    PropertyReport unfinished(std::size_t step) const {
        PropertyReport one;
        one.op = tasks_[property_of(step)].op->name();
        one.property = tasks_[property_of(step)].property->name;
        one.status = PropertyReport::Status::error;
        return one;
    }

    /// What a property gets of the time, against others: one that is to try hundreds of clauses
    /// takes longer than one that looks for anything.
    double weight(std::size_t step) const {
        constexpr double kOfClauses = 5;
        const std::size_t i = property_of(step);
        return i < tasks_.size() && tasks_[i].property->clauses ? kOfClauses : 1;
    }

    /// What a property may take of the time that is left, when `at_once` run side by side.
    double seconds_for(std::size_t step, int at_once, std::size_t held = 0) const {
        if (options_.total_seconds <= 0) return 0;
        const double left = start_ + options_.total_seconds - clock_.now();
        double behind = weight(step) + static_cast<double>(held);
        for (std::size_t k = started_; k < order_.size(); ++k)
            if (!done_[property_of(order_[k])]) behind += weight(order_[k]);
        return std::max(0.001, left * std::min(1.0, at_once * weight(step) / behind));
    }

    PropertyReport run(std::size_t step, double seconds, Candidate& candidate, KnownMinima& known,
                       Surveys& surveys, const CaseObserver& on_case) const {
        const auto [op, property] = tasks_[property_of(step)];
        EngineOptions engine = options_.engine;
        engine.seconds = seconds;
        if (is_first_look(step)) engine.most_cases = kFirstLook;
        if (options_.total_seconds > 0)  // shrinking may take a run a little past its time, not far
            engine.shrink_seconds =
                std::min(std::max(options_.total_seconds / 4, 2.0), engine.shrink_seconds);
        engine.withheld = withheld_outputs(engine.features, *op);
        engine.missing_outputs = missing_outputs(engine.features, operators());
        if (options_.corpus) engine.replay = options_.corpus->cases_of(*op, *property);
        if (!engine.replay_only) engine.survey = &surveys.of(*op, candidate, engine);
        return run_property(*op, *property, candidate, engine, clock_, on_case, known);
    }

    /// News of a property that goes on.
    void observe(std::size_t step, const PropertyReport& now) {
        const std::size_t i = property_of(step);
        if (findings_->has_more(i, now)) progress_.erase();
        findings_->update(i, *tasks_[i].op, now);
        progress_.show(now, i, tasks_.size(), options_.engine.cases,
                       options_.total_seconds > 0 ? start_ + options_.total_seconds : 0,
                       findings_->cases());
    }

    void finish(std::size_t step, PropertyReport one) {
        const std::size_t i = property_of(step);
        observe(i, one);
        if (is_first_look(step) && one.status != PropertyReport::Status::falsified) return;
        findings_->close(i);
        if (!one.taken.text.empty()) report_.taken[one.op] = one.taken;
        done_[i] = std::move(one);
    }

    /// A property whose process is gone: with what it told, and for the reason given when that
    /// cannot be a verdict.
    void finish_without_answer(std::size_t step, const std::string& reason) {
        const std::size_t i = property_of(step);
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
        finish(one.status == PropertyReport::Status::falsified ? i : step, std::move(one));
    }

    void save() { findings_->save(); }

    /// Nothing is begun any more, and what goes on is stopped.
    bool is_ending() const { return clock_.interrupted() || stopped_ || is_past_end(); }

    /// Past the time limit and half of a tenth of it, which the last calls may take.
    bool is_past_end() const { return is_past(1.05); }
    /// Past all that a process may take to say what it has.
    bool is_past_grace() const { return is_past(1.1); }

    void finish_without_beginning(std::size_t i) {
        if (is_first_look(i)) return;
        PropertyReport none = unfinished(i);
        if (is_past_end()) none.status = PropertyReport::Status::inconclusive;
        none.note =
            is_past_end() ? "no time was left to begin it" : "no process was left to run it";
        finish(i, std::move(none));
    }

    void stop() { stopped_ = true; }
    bool is_stopped() const { return stopped_; }

    /// Puts the reports in the order of the list, each operator's required classes behind it.
    void close() {
        for (std::size_t i = 0; i < tasks_.size(); ++i) {
            if (done_[i]) report_.properties.push_back(std::move(*done_[i]));
            const bool last_of_operator =
                i + 1 == tasks_.size() || tasks_[i + 1].op != tasks_[i].op;
            if (last_of_operator) count_pairs(*tasks_[i].op, report_);
            if (!last_of_operator || !classes_are_judged(*tasks_[i].op)) continue;
            if (options_.engine.shards == 1) judge_classes(*tasks_[i].op, report_);
            judge_clauses(*tasks_[i].op, report_);
        }
        report_.duration_s = clock_.now() - start_;
        report_.interrupted = clock_.interrupted();
    }

private:
    bool is_past(double limits) const {
        return options_.total_seconds > 0 &&
               clock_.now() > start_ + limits * options_.total_seconds;
    }

    struct Task {
        const Operator* op;
        const Property* property;
    };
    static constexpr std::int64_t kFirstLook = 40;  ///< cases, the plain ones among them
    static constexpr int kLookedAt = 2;             ///< of the laws that come first

    std::size_t property_of(std::size_t step) const {
        return is_first_look(step) ? step - tasks_.size() : step;
    }

    void take_over(std::size_t i) {
        const auto one = std::ranges::find_if(options_.finished, [&](const PropertyReport& p) {
            return p.op == tasks_[i].op->name() && p.property == tasks_[i].property->name;
        });
        if (one == options_.finished.end()) return;
        findings_->take_over(i, *one);
        if (!one->taken.text.empty()) report_.taken[one->op] = one->taken;
        done_[i] = *one;
    }

    /// First, for every operator, what finds most defects in the least time; then the rest, operator by operator.
    /// A run that ends with the first counterexample looks at some cases of each operator before it goes through all
    /// cases of one.
    void order_tasks() {
        constexpr std::string_view kFirst[] = {"agreement", "deviation", "exact_lattice",
                                               "exact_integers", "validation"};
        const auto rank = [&](std::size_t i) {
            return std::ranges::find(kFirst, tasks_[i].property->name) - std::begin(kFirst);
        };
        order_.resize(tasks_.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::stable_sort(order_, std::less<>(), rank);
        if (!options_.stop_at_first || options_.engine.replay_only) return;
        std::vector<std::size_t> looks;
        for (const std::size_t i : order_)
            if (rank(i) < kLookedAt) looks.push_back(tasks_.size() + i);
        order_.insert(order_.begin(), looks.begin(), looks.end());
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
    Progress progress_;
    std::optional<Findings> findings_;  ///< made when the list is
    std::vector<Task> tasks_;
    std::vector<std::optional<PropertyReport>> done_;
    std::vector<std::size_t> order_;  ///< of the steps
    std::size_t started_ = 0;
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
    Run run(info, options, clock, report, out, progress);
    KnownMinima known;
    Surveys surveys;
    Pace pace;
    run.save();
    for (std::size_t i = run.next(); i < run.end() && !clock.interrupted(); i = run.next()) {
        PropertyReport one = run.run(i, run.seconds_for(i, 1), candidate, known, surveys,
                                     [&](const PropertyReport& now) {
                                         if (pace.passes(now, clock.now())) run.observe(i, now);
                                     });
        const bool settled = is_settled(one);
        run.finish(i, std::move(one));
        if (options.stop_at_first && settled) {
            run.stop();
            break;
        }
    }
    run.close();
}

namespace {

/// Empty when it could not be made: then each process tries, and says why it cannot.
std::string own_survey(const Run& run, std::size_t step, Candidate& candidate, Surveys& surveys) {
    try {
        return to_text(run.survey_for(step, candidate, surveys));
    } catch (const std::exception&) {
        return {};
    }
}

}  // namespace

void verify_side_by_side(const CandidateInfo& info,
                         const std::function<std::unique_ptr<Candidate>()>& open, int processes,
                         const VerifyOptions& options, const Clock& clock, RunReport& report,
                         std::ostream& out, std::ostream* progress) {
    Run run(info, options, clock, report, out, progress);
    Processes pool(processes, [&]() -> Processes::Serve {
        const std::shared_ptr<Candidate> candidate = open();
        return [&run, &clock, candidate, known = std::make_shared<KnownMinima>(),
                surveys = std::make_shared<Surveys>()](const std::string& question,
                                                       const Processes::Tell& tell) {
            std::istringstream in(question);
            std::size_t i = 0;
            double seconds = 0;
            in >> i >> seconds;
            if (i >= run.end()) return own_survey(run, i - run.end(), *candidate, *surveys);
            run.tell_survey(i, question.substr(std::min(question.find('\n') + 1, question.size())),
                            *surveys);
            const CaseObserver on_case = [&, pace = Pace()](const PropertyReport& now) mutable {
                if (pace.passes(now, clock.now())) tell(property_to_text(now));
            };
            try {
                return property_to_text(run.run(i, seconds, *candidate, *known, *surveys, on_case));
            } catch (const Stopped&) {
                PropertyReport none = run.unfinished(i);
                none.status = PropertyReport::Status::inconclusive;
                return property_to_text(none);
            } catch (const std::exception& e) {  // the library is gone before its first case
                PropertyReport none = run.unfinished(i);
                none.note = e.what();
                return property_to_text(none);
            }
        };
    });
    run.save();
    constexpr double kGrace = 0.5;  ///< seconds in which a process that was told to stop answers
    Agenda agenda({run.end(), [&] { return run.next(); },
                   [&](std::size_t step) { return run.surveyed(step); }});
    std::optional<double> told;
    for (;;) {
        while (!run.is_ending() && pool.any_idle()) {
            const auto question = agenda.next();
            if (!question) break;
            pool.ask(question->number,
                     fmt::format("{} {}\n{}", question->number,
                                 run.seconds_for(question->number, processes, agenda.held()), question->survey));
        }
        if (!pool.any_busy()) break;
        // A terminal signals all processes; `kill` only this one.
        if (run.is_ending() && !told) {
            pool.signal(SIGINT);
            told = clock.now();
        }
        if (told && (clock.now() - *told > kGrace || run.is_past_grace())) pool.give_up();
        Processes::Answer answer;
        if (!pool.wait(0.1, answer)) continue;
        if (agenda.is_survey(answer.number)) {
            agenda.learned(answer.number, answer.lost ? "" : answer.text);
            continue;
        }
        if (answer.lost) {
            run.finish_without_answer(answer.number, answer.why);
            continue;
        }
        PropertyReport one = property_from_text(answer.text, schemas());
        if (!answer.is_final) {
            run.observe(answer.number, one);
            continue;
        }
        const bool settled = is_settled(one);
        run.finish(answer.number, std::move(one));
        if (options.stop_at_first && settled) run.stop();
    }
    if (!clock.interrupted() && !(options.stop_at_first && run.is_stopped()))
        while (const auto left = agenda.take_left()) run.finish_without_beginning(*left);
    run.close();
}

}  // namespace attncheck::properties
