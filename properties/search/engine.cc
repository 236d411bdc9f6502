#include "properties/search/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "properties/candidate/candidate.h"
#include "properties/case/case_of_call.h"
#include "properties/search/case_evidence.h"
#include "properties/search/case_sequence.h"
#include "properties/search/declared_calls.h"
#include "properties/search/walk.h"

namespace attncheck::properties {

namespace {

/// Calls of cases inside of what a survey learned; what is declared is DeclaredCalls' concern. A call of
/// another operator says nothing.
ForeseenDeclines::Inside calls_inside(const Survey* survey) {
    if (!survey || survey->scope.is_open() || survey->scope.is_declared()) return {};
    return [&scope = survey->scope](const Call& call) {
        const std::optional<CaseOfCall> of = case_of(call);
        return !of || !scope.is_of(of->spec) || scope.holds(of->spec);
    };
}

}  // namespace

/// The search for one property.
class Search {
public:
    Search(const Operator& op, const Property& property, Candidate& candidate,
           EngineOptions options, const Clock& clock, KnownMinima& known)
        : op_(op),
          property_(property),
          options_(std::move(options)),
          clock_(clock),
          known_(known),
          evidence_(op, property, options_),
          foreseen_(candidate, calls_inside(options_.survey)),
          declared_(foreseen_, options_.declared),
          sequence_(op, property, options_, foreseen_),
          context_{declared_, options_.rounding, options_.rule, options_.samples,
                   options_.missing_outputs, options_.declared, options_.companions} {
        report_.op = op.name();
        if (options_.survey) report_.taken = options_.survey->taken;
        report_.property = property.name;
    }

    /// Goes on where the slice before ended.
    PropertyReport go_on(const Slice& slice, const CaseObserver& on_case) {
        on_case_ = &on_case;
        const double start = clock_.now();
        deadline_ = slice.seconds > 0 ? start + slice.seconds : 0;
        slice_cases_ = slice.cases;
        has_left_one_ = false;
        if (!has_begun_) begin();
        if (!is_over_) search();
        report_.seconds += clock_.now() - start;
        is_over_ = is_over_ || is_through();
        PropertyReport now = report_;
        if (!is_judged_) conclude(now);
        return now;
    }

    /// Nothing is left to search, however much time there is.
    bool is_over() const { return is_over_; }

    /// The way from a case that another process found to its local minimum.
    Counterexample shrunk(const Counterexample& found) {
        foreseen_.turn(ForeseenDeclines::Mode::off);
        start_walk(found.original, Verdict::fail(found.failure, found.found_message, found.tier));
        if (!walk_->has_failed_again() && clock_.interrupted()) {  // nothing is known of it
            Counterexample out = found;
            out.being_shrunk = false;
            return out;
        }
        walk_down(*walk_, known_, options_.seed, op_.name() + "." + property_.name);
        Counterexample out = walk_->finish(known_);
        out.tier = found.tier;
        out.found_message = found.found_message;
        out.case_number = found.case_number;
        return out;
    }

private:
    /// What decides before any case is drawn, and how many cases are asked for.
    void begin() {
        has_begun_ = true;
        if (options_.begun) return redo(*options_.begun);
        if (op_.is_composition() && lacks_an_operator_output()) {
            not_applicable("needs every output of the operators that it is made of, not given");
            is_over_ = is_judged_ = true;
            return;
        }
        if (options_.survey && options_.survey->takes_nothing && options_.replay.empty()) {
            report_.status = PropertyReport::Status::declined;
            report_.declined = options_.survey->declined;
            report_.note = options_.survey->scope.is_declared()
                               ? "every case inside of what is declared was declined"
                               : "every case was declined";
            if (!options_.survey->reason.empty()) report_.note += ": " + options_.survey->reason;
            if (!options_.survey->scope.is_declared())
                report_.note += fmt::format("; {} were tried, --features says what a library takes", report_.declined);
            is_over_ = is_judged_ = true;
            return;
        }
    }

    /// The state after the cases of an earlier run: each is drawn again, and none is run.
    void redo(const PropertyReport& begun) {
        report_ = begun;
        report_.go_on_shrinking();
        report_.status = PropertyReport::Status::held;
        report_.note.clear();
        report_.interrupted = false;
        for (const Counterexample& found : report_.counterexamples) known_classes_.insert(found.failure);
        replayed_ = static_cast<std::size_t>(std::max<std::int64_t>(0, begun.journal.replayed));
        for_each_case(begun.journal, [&](Outcome outcome, const std::string& failure) {
            std::optional<Spec> spec = sequence_.next();
            while (!spec) spec = sequence_.next();
            sequence_.add_drawn();
            const auto ruling = property_.clauses ? ruling_of(*spec) : std::nullopt;
            sequence_.add(*spec, outcome, ruling ? ruling->clause : std::string());
            if (failure.empty()) return;
            if (failure == kTimedOut && sequence_.has_failure(failure)) ++known_timeouts_;
            sequence_.add_failure(failure);
        });
    }

    void search() {
        replaying_ = replayed_ < options_.replay.size();
        while (replayed_ < options_.replay.size() && !finished() && !is_slice_over()) {
            fresh_case(next_replayed());
            settle();
        }
        if (replayed_ < options_.replay.size() || options_.replay_only) return;
        replaying_ = false;
        while (!finished() && !is_slice_over()) {
            const std::optional<Spec> spec = sequence_.next();
            if (!spec) continue;
            fresh_case(*spec);
            settle();
        }
    }

    /// The verdict on what was searched so far.
    void conclude(PropertyReport& now) {
        sequence_.describe(now);
        now.interrupted = clock_.interrupted();
        if (unconfirmed_ > 0)
            now.status = was_cut_ ? PropertyReport::Status::inconclusive : PropertyReport::Status::error;
        if (!now.counterexamples.empty())
            now.status = PropertyReport::Status::falsified;
        else if (now.status == PropertyReport::Status::held && !options_.replay_only)
            sequence_.conclude(now);
    }

    bool lacks_an_operator_output() const {
        return std::ranges::any_of(op_.entry_points(), [&](const std::string& entry) {
            return !context_.gives_all_of(entry);
        });
    }

    bool is_slice_over() const {
        return has_left_one_ || (slice_cases_ > 0 && sequence_.has_met(slice_cases_));
    }

    bool finished() const {
        return clock_.interrupted() || (deadline_ > 0 && clock_.now() >= deadline_) || is_through();
    }

    bool is_through() const {
        const bool is_replayed = replayed_ >= options_.replay.size();
        return (is_replayed && sequence_.is_through()) ||
               (replaying_ && has_most_counterexamples()) || known_timeouts_ >= 3 || unconfirmed_ >= 3 ||
               report_.status == PropertyReport::Status::error ||
               report_.status == PropertyReport::Status::not_applicable;
    }

    bool has_most_counterexamples() const {
        return std::ssize(report_.counterexamples) >= options_.max_counterexamples;
    }

    Spec next_replayed() {
        Spec spec = options_.replay[replayed_++];
        report_.journal.replayed = static_cast<std::int64_t>(replayed_);
        spec.withheld |= options_.withheld;
        return spec;
    }

    void not_applicable(std::string note) {
        report_.status = PropertyReport::Status::not_applicable;
        report_.note = std::move(note);
    }

    void error(std::string note) {
        report_.status = PropertyReport::Status::error;
        report_.note = std::move(note);
    }

    /// A generated case. Leaves a walk when it starts a counterexample.
    void fresh_case(const Spec& spec) {
        foreseen_.turn(!options_.survey || property_.validation || replaying_ ? ForeseenDeclines::Mode::off
                       : sequence_.explores() ? ForeseenDeclines::Mode::exploring
                                              : ForeseenDeclines::Mode::on);
        was_stopped_ = false;
        const Verdict verdict = evaluate(spec);
        if (was_stopped_) return;  // nothing is known of the case
        if (!replaying_) {
            sequence_.add_drawn();
            report_.drawn.digest += CaseSequence::digest(spec);
        }
        if (report_.status == PropertyReport::Status::error) return;
        if (verdict.kind == Verdict::Kind::inapplicable) {
            if (!replaying_) note(spec, Outcome::inapplicable);
            // Every other case asks for as few outputs as this one.
            if (!verdict.message.empty() && !options_.missing_outputs.empty() &&
                spec.withheld == options_.withheld)
                not_applicable(verdict.message);
            return;
        }
        if (verdict.kind == Verdict::Kind::declined) {
            ++report_.declined;
            if (!replaying_) {
                const bool is_taken = sequence_.is_inside_scope() && takes_its_own_call(spec);
                note(spec, is_taken ? Outcome::others_declined : Outcome::declined);
            }
            (*on_case_)(report_);
            return;
        }
        const Outcome outcome =
            CaseTally::is_hardly_compared(verdict.elements) ? Outcome::hardly_compared : Outcome::judged;
        if (!replaying_) sequence_.add(spec, outcome, verdict.clause);
        const std::vector<std::string> labels = op_.labels(spec);
        if (replaying_)
            ++report_.replayed;
        else
            evidence_.add_classes(spec, labels, report_);
        evidence_.add_errors(verdict, report_);
        const bool fails = verdict.failed() && !evidence_.waives(verdict.failure, labels, report_);
        if (!replaying_) add_to(report_.journal, outcome, fails ? verdict.failure : std::string());
        // A new failure is told with its counterexample: a run that goes on has both or neither.
        const bool is_new = fails && !known_classes_.contains(verdict.failure) && !has_most_counterexamples();
        if (!is_new) (*on_case_)(report_);
        if (!fails) return;
        if (!replaying_) sequence_.add_failure(verdict.failure);
        if (known_classes_.contains(verdict.failure) && verdict.failure == kTimedOut) ++known_timeouts_;
        if (!is_new) return;
        known_classes_.insert(verdict.failure);
        foreseen_.turn(ForeseenDeclines::Mode::off);  // a certificate is of calls that were made
        start_walk(spec, verdict);
    }

    /// A generated case without a verdict.
    void note(const Spec& spec, Outcome outcome) {
        sequence_.add(spec, outcome, {});
        add_to(report_.journal, outcome, {});
    }

    void start_walk(const Spec& spec, const Verdict& verdict) {
        walk_.emplace(
            op_, property_, options_, clock_, context_.candidate,
            [this](const Spec& other) { return evaluate(other); },
            [this](const Spec& other, const ref::RoundingClass& rounding) {
                context_.rounding = rounding;
                const Verdict under = evaluate(other);
                context_.rounding = options_.rounding;
                return under;
            },
            [this](const Property& law, const Spec& other) { return evaluate(other, law); },
            spec, verdict);
    }

    /// When the last case began a counterexample: it is walked down here or left to others.
    void settle() {
        if (!walk_) return;
        if (walk_->has_failed_again()) show_before_shrinking();
        const bool is_left = options_.leaves_shrinking && walk_->has_failed_again() &&
                             report_.status != PropertyReport::Status::error;
        if (!is_left) {
            walk_down(*walk_, known_, options_.seed, op_.name() + "." + property_.name);
            return finish_walk();
        }
        report_.counterexamples.push_back(being_shrunk());
        has_left_one_ = true;
        limit_time_after_walk();
        walk_.reset();
    }

    /// A run that is killed while it shrinks has reported what it found.
    void show_before_shrinking() {
        report_.counterexamples.push_back(being_shrunk());
        (*on_case_)(report_);
        report_.counterexamples.pop_back();
    }

    Counterexample being_shrunk() const {
        Counterexample found = walk_->found();
        found.case_number = case_number();
        found.being_shrunk = true;
        found.certificate = kNotShrunk;
        return found;
    }

    /// Of the last case in the whole property, of which this process may have a part.
    int case_number() const { return static_cast<int>(replaying_ ? 0 : sequence_.case_number()); }

    /// A death that may have come from outside is nobody's fault until it happens again.
    void drop_walk() {
        const Counterexample& found = walk_->found();
        ++unconfirmed_;
        was_cut_ = was_cut_ || clock_.interrupted();
        known_classes_.erase(found.failure);
        sequence_.remove_failure(found.failure);
        if (report_.status != PropertyReport::Status::error)
            report_.note = fmt::format("{} on {}: {}", found.found_message, print(found.original),
                                       clock_.interrupted()
                                           ? "the run ended before the case was repeated"
                                           : "this did not happen again, so that another process "
                                             "or a lack of memory may be the cause");
        walk_.reset();
    }

    /// Whether a declined case is one that the candidate takes: another call of the property was
    /// declined then. Asked only while few are known.
    bool takes_its_own_call(const Spec& spec) {
        if (property_.validation || report_.declined > 2 * kConclusiveCases) return false;
        try {
            return !context_.candidate.run(op_.build(spec), {}).declined();
        } catch (const Stopped&) {
            return false;
        } catch (const std::exception& e) {
            error(fmt::format("{}: {}", print(spec), e.what()));
            return false;
        }
    }

    void limit_time_after_walk() {
        context_.candidate.limit_time(
            std::chrono::duration<double>(known_classes_.contains(kTimedOut) ? 1.0 : 0));
    }

    void finish_walk() {
        context_.candidate.limit_time(std::chrono::duration<double>(0));
        const bool is_error = report_.status == PropertyReport::Status::error;
        if (!walk_->is_confirmed() || (is_error && !walk_->has_failed_again())) return drop_walk();
        report_.counterexamples.push_back(walk_->finish(known_));
        report_.counterexamples.back().case_number = case_number();
        (*on_case_)(report_);
        limit_time_after_walk();
        walk_.reset();
    }

    Verdict evaluate(const Spec& spec) { return evaluate(spec, property_); }
    Verdict evaluate(const Spec& spec, const Property& law) {
        declared_.turn(!law.validation && context_.takes(spec));
        try {
            return law.check(spec, context_);
        } catch (const Stopped&) {
            was_stopped_ = true;
            return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
        } catch (const NoRoom& e) {
            report_.note = fmt::format("{} case(s) skipped: {}", ++without_room_, e.what());
            return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
        } catch (const std::exception& e) {  // a LoadError too: the library is gone
            error(fmt::format("{}: {}", print(spec), e.what()));
            return {};
        }
    }

    const Operator& op_;
    const Property& property_;
    const EngineOptions options_;
    const Clock& clock_;
    const CaseObserver* on_case_ = nullptr;  ///< of the slice
    KnownMinima& known_;
    const CaseEvidence evidence_;
    ForeseenDeclines foreseen_;  ///< the candidate
    DeclaredCalls declared_;     ///< the same
    CaseSequence sequence_;
    PropertyContext context_;
    PropertyReport report_;
    double deadline_ = 0;  ///< of the slice
    std::int64_t slice_cases_ = 0;
    bool has_left_one_ = false;  ///< in this slice, to be shrunk
    bool has_begun_ = false, is_over_ = false;
    bool is_judged_ = false;  ///< before any case was
    std::size_t replayed_ = 0;    ///< how many of options_.replay were started
    bool replaying_ = true;
    std::optional<Walk> walk_;
    std::set<std::string> known_classes_;
    bool was_stopped_ = false;  ///< in the middle of a case
    int known_timeouts_ = 0;
    int without_room_ = 0;  ///< cases with more address space than the system grants
    int unconfirmed_ = 0;  ///< deaths that did not happen again
    bool was_cut_ = false; ///< or had no time to: the clock says nothing of the library
};

PropertySearch::PropertySearch(const Operator& op, const Property& property, Candidate& candidate,
                               EngineOptions options, const Clock& clock, KnownMinima& known)
    : search_(std::make_unique<Search>(op, property, candidate, std::move(options), clock, known)) {}
PropertySearch::~PropertySearch() = default;

PropertyReport PropertySearch::go_on(const Slice& slice, const CaseObserver& on_case) {
    return search_->go_on(slice, on_case);
}

Counterexample PropertySearch::shrunk(const Counterexample& found) { return search_->shrunk(found); }

bool PropertySearch::is_over() const { return search_->is_over(); }

PropertyReport run_property(const Operator& op, const Property& property, Candidate& candidate,
                            const EngineOptions& options, const Clock& clock,
                            const CaseObserver& on_case, KnownMinima& known) {
    return Search(op, property, candidate, options, clock, known).go_on({0, options.seconds}, on_case);
}

Verdict check_case(const Property& property, const Spec& spec, PropertyContext& context) {
    context.candidate.restart();
    return property.check(spec, context);
}

}  // namespace attncheck::properties
