// The only file that sees rapidcheck: its headers and instantiations cost seconds of build time
// each.
#include "properties/search/engine.h"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <unordered_map>

#include "properties/search/shrink.h"

namespace attncheck::properties {

/// rapidcheck prints counterexamples through this; they are case lines here.
void showValue(const Spec& spec, std::ostream& os);
void showValue(const Spec& spec, std::ostream& os) { os << print(spec); }

namespace {

std::uint64_t hash_text(std::string_view text) {  // FNV-1a
    std::uint64_t hash = 1469598103934665603ull;
    for (const unsigned char ch : text) hash = (hash ^ ch) * 1099511628211ull;
    return hash;
}

class NoListener : public rc::detail::TestListener {
public:
    void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
    void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
    void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
};

/// Neighbours as a lazy rapidcheck sequence: each is built only when rapidcheck asks for it, and
/// none when there is no time left (a case that is still large has thousands, each with its data).
struct NeighbourSequence {
    std::vector<Neighbour> list;
    std::function<bool()> stopped;
    std::size_t next = 0;
    rc::Maybe<Spec> operator()() {
        while (next < list.size() && !stopped())
            if (std::optional<Spec> spec = list[next++]()) return *spec;
        return rc::Nothing;
    }
};

/// The search for one property: what rapidcheck's test function closes over.
class Search {
public:
    Search(const Operator& op, const Property& property, Candidate& candidate,
           const EngineOptions& options, const Clock& clock, const CaseObserver& on_case,
           KnownMinima& known)
        : op_(op),
          property_(property),
          options_(options),
          clock_(clock),
          on_case_(on_case),
          known_(known),
          pairs_(op),
          context_{candidate, options.rounding, options.rule, options.samples} {
        report_.op = op.name();
        report_.property = property.name;
    }

    PropertyReport run() {
        const double start = clock_.now();
        deadline_ = options_.seconds > 0 ? start + options_.seconds : 0;
        const std::int64_t cases =
            options_.cases == 0 ? 0
                                : std::max<std::int64_t>(1, options_.cases * property_.case_factor /
                                                                property_.case_divisor);
        wanted_ = cases > 0
                      ? std::max<std::int64_t>(
                            1, (cases + options_.shards - 1 - options_.shard) / options_.shards)
                      : 0;
        constexpr std::int64_t kRound = 200;  // rapidcheck cannot be stopped inside a round
        while (replayed_ < options_.replay.size() && !finished())
            run_round(0, std::max(2, static_cast<int>(options_.replay.size() - replayed_)));
        replayed_ = 0;
        replaying_ = false;
        for (std::uint64_t round = 0; !options_.replay_only && !finished(); ++round) {
            const std::int64_t left = wanted_ > 0 ? wanted_ - drawn_ : kRound;
            run_round(round, static_cast<int>(std::clamp<std::int64_t>(left, 2, kRound)));
        }
        report_.seconds = clock_.now() - start;
        report_.interrupted = clock_.interrupted();
        if (!report_.counterexamples.empty())
            report_.status = PropertyReport::Status::falsified;
        else if (report_.status != PropertyReport::Status::error &&
                 report_.cases + report_.replayed == 0)
            report_.status = PropertyReport::Status::declined;
        return std::move(report_);
    }

private:
    bool finished() const {
        return clock_.interrupted() || (deadline_ > 0 && clock_.now() >= deadline_) ||
               (wanted_ > 0 && drawn_ >= wanted_) ||
               static_cast<int>(report_.counterexamples.size()) >= options_.max_counterexamples ||
               known_timeouts_ >= 3 || report_.status == PropertyReport::Status::error;
    }

    Spec draw(std::uint64_t seed, int size) const {
        Random random(seed);
        for (int tries = 0; tries < 100; ++tries) {
            Spec spec = op_.sample(random, size, options_.profile);
            if (property_.adapt) property_.adapt(spec, random);
            if (!op_.illegal(spec) && (!property_.domain || property_.domain(spec))) return spec;
        }
        throw std::logic_error(fmt::format("{}: the generator of {} leaves its own domain",
                                           op_.name(), property_.name));
    }

    /// rapidcheck may ask for one more than there are: that one is not run.
    const Spec& next_replayed() {
        return options_.replay[std::min(replayed_++, options_.replay.size() - 1)];
    }

    void run_round(std::uint64_t round, int cases) {
        rc::detail::TestParams params;
        const std::uint64_t lane = round * static_cast<std::uint64_t>(options_.shards) +
                                   static_cast<std::uint64_t>(options_.shard);
        params.seed = mix(options_.seed ^ hash_text(op_.name() + "." + property_.name)) + lane;
        params.maxSuccess = cases;
        params.maxSize = 100;
        rc::detail::TestMetadata metadata;
        metadata.id = metadata.description = op_.name() + "." + property_.name;
        const rc::Gen<Spec> generator([this](const rc::Random& random, int size) {
            rc::Random copy = random;
            const Spec first = replaying_ ? next_replayed() : draw(copy.next(), size);
            return rc::shrinkable::shrinkRecur(first, [this](const Spec& spec) {
                std::vector<Neighbour> list = neighbours(spec, op_, property_.domain);
                prepend_known(spec, list);
                return rc::makeSeq<NeighbourSequence>(
                    std::move(list), [this] { return failing_runs_ == 0 || is_spent(); });
            });
        });
        failing_.reset();
        NoListener listener;
        const auto result = rc::detail::checkTestable(
            [&] {
                const Spec spec = *generator;
                const std::string failure = failing_ ? shrink_step(spec) : fresh_case(spec);
                if (!failure.empty()) RC_FAIL(failure);
            },
            metadata, params, listener, std::unordered_map<std::string, rc::detail::Reproduce>{});
        if (failing_)
            finish_counterexample();
        else if (!result.is<rc::detail::SuccessResult>() &&
                 report_.status != PropertyReport::Status::error)
            error("the generator failed; see draw()");
    }

    void error(std::string note) {
        report_.status = PropertyReport::Status::error;
        report_.note = std::move(note);
    }

    /// A generated case. Returns its failure class when it starts a counterexample.
    std::string fresh_case(const Spec& spec) {
        if (finished() || replayed_ > options_.replay.size()) return {};
        if (!replaying_) ++drawn_;
        Verdict verdict = evaluate(spec);
        if (report_.status == PropertyReport::Status::error) return {};
        if (verdict.kind == Verdict::Kind::inapplicable) return {};
        if (verdict.kind == Verdict::Kind::declined) {
            ++report_.declined;
            on_case_(report_);
            return {};
        }
        const std::vector<std::string> labels = op_.labels(spec);
        count(spec, labels);
        report_.worst_ratio = std::max(report_.worst_ratio, verdict.worst_ratio);
        for (const CastEvidence& cast : verdict.casts) add_evidence(report_.casts, cast);
        on_case_(report_);
        if (!verdict.failed()) return {};
        if (waived(labels)) return {};
        if (known_classes_.contains(verdict.failure)) {
            if (verdict.failure == "timed out") ++known_timeouts_;
            return {};
        }
        begin_counterexample(spec, verdict);
        return verdict.failure;
    }

    /// What is replayed says nothing about the generator. A call with edited arguments is a case of
    /// validation only: its lists and data decide nothing, and counting them would dilute or fill
    /// the quotas of what is computed.
    void count(const Spec& spec, const std::vector<std::string>& labels) {
        if (replaying_) {
            ++report_.replayed;
            return;
        }
        ++report_.cases;
        if (!spec.edits.empty())
            ++report_.labels[kEditedLabel];
        else {
            for (const auto& label : labels) ++report_.labels[label];
            pairs_.note(labels, report_.pairs);
        }
    }

    bool waived(const std::vector<std::string>& labels) {
        for (const Waiver& waiver : options_.waivers) {
            if ((waiver.op != "*" && waiver.op != op_.name()) ||
                (waiver.property != "*" && waiver.property != property_.name))
                continue;
            const bool applies = std::all_of(
                waiver.labels.begin(), waiver.labels.end(), [&](const std::string& label) {
                    return std::find(labels.begin(), labels.end(), label) != labels.end();
                });
            if (!applies) continue;
            ++report_.waived;
            if (std::find(report_.waivers.begin(), report_.waivers.end(), waiver.reason) ==
                report_.waivers.end())
                report_.waivers.push_back(waiver.reason);
            return true;
        }
        return false;
    }

    Verdict evaluate(const Spec& spec) {
        try {
            return property_.check(spec, context_);
        } catch (const std::exception& e) {  // a LoadError too: the library is gone
            error(fmt::format("{}: {}", print(spec), e.what()));
            return {};
        }
    }

    void begin_counterexample(const Spec& spec, const Verdict& verdict) {
        Counterexample found;
        found.spec = found.original = spec;
        found.failure = verdict.failure;
        found.message = found.found_message = verdict.message;
        found.tier = tier_of(property_, verdict);
        found.case_number = static_cast<int>(report_.cases);
        failing_ = std::move(found);
        known_classes_.insert(verdict.failure);
        verdicts_.clear();
        shrink_start_ = clock_.now();
        // A hang costs the whole limit at every step: what ran so far says how long an honest call
        // takes.
        context_.candidate.limit_time(std::chrono::duration<double>(
            verdict.failure == "timed out" ? std::min(options_.timeout_s, 0.5)
                                           : options_.timeout_s));
        failing_runs_ = 0;
        constexpr int kRuns = 3;
        for (int k = 0; k < kRuns; ++k) {
            context_.candidate.restart();
            failing_runs_ += evaluate(spec).failure == verdict.failure;
        }
        tries_ = failing_runs_ == kRuns ? 1 : 5;
    }

    /// A neighbour on the way down. Returns the failure class when it fails the same way.
    std::string shrink_step(const Spec& spec) {
        // Not repeatable in a fresh process: nothing to walk on.
        if (failing_runs_ == 0 || is_spent() || !fails_alike(spec)) return {};
        failing_->spec = spec;
        ++failing_->steps_taken;
        return failing_->failure;
    }

    bool is_spent() {
        budget_spent_ = budget_spent_ || clock_.interrupted() ||
                        clock_.now() - shrink_start_ > options_.shrink_seconds;
        return budget_spent_;
    }

    bool fails_alike(const Spec& spec) {
        const std::string key = print(spec);
        if (const auto it = verdicts_.find(key); it != verdicts_.end()) return it->second;
        ++failing_->neighbours_tried;
        bool fails = false;
        for (int k = 0; k < tries_ && !fails; ++k) {
            const Verdict verdict = evaluate(spec);
            fails = verdict.failed() && verdict.failure == failing_->failure;
            if (fails) failing_->message = verdict.message;
        }
        verdicts_.emplace(key, fails);
        return fails;
    }

    void prepend_known(const Spec& spec, std::vector<Neighbour>& list) const {
        const auto it = known_.find(op_.name() + " " + failing_->failure);
        if (it == known_.end()) return;
        std::vector<Neighbour> first;
        for (const Spec& minimum : it->second)
            if (complexity(minimum) < complexity(spec) &&
                (!property_.domain || property_.domain(minimum)))
                first.push_back([minimum] { return minimum; });
        list.insert(list.begin(), first.begin(), first.end());
    }

    void finish_counterexample() {
        Counterexample& found = *failing_;
        std::size_t held = 0, all = 0;
        if (failing_runs_ == 0) {
            found.repeatable = false;
            found.certificate =
                "fails here but not alone in a fresh process (3 tries): it depends on earlier "
                "calls, on "
                "uninitialised memory or on timing; not shrunk";
        } else {
            // A case that is still large has tens of thousands of neighbours: listing them would
            // take longer than the search that was stopped.
            if (!budget_spent_)
                for (const Neighbour& neighbour : neighbours(found.spec, op_, property_.domain))
                    if (const std::optional<Spec> spec = neighbour()) {
                        ++all;
                        const auto it = verdicts_.find(print(*spec));
                        held += it != verdicts_.end() && !it->second;
                    }
            found.certificate =
                budget_spent_ || held < all
                    ? fmt::format("search stopped after {:.0f} s; smaller cases may exist",
                                  clock_.now() - shrink_start_)
                    : fmt::format(
                          "no dimension can be decreased, no element simplified: "
                          "{} of {} neighbours hold",
                          held, all);
            if (tries_ > 1)
                found.certificate += fmt::format("; fails in {} of 3 runs only", failing_runs_);
            confirm(found);
            known_[op_.name() + " " + found.failure].push_back(found.spec);
        }
        found.shrink_seconds = clock_.now() - shrink_start_;
        context_.candidate.limit_time(
            std::chrono::duration<double>(known_classes_.contains("timed out") ? 1.0 : 0));
        report_.counterexamples.push_back(std::move(found));
        failing_.reset();
        budget_spent_ = false;
    }

    /// The shrunk case once more, alone in a fresh process and with the full time limit.
    void confirm(Counterexample& found) {
        context_.candidate.limit_time(std::chrono::duration<double>(0));
        context_.candidate.restart();
        const Verdict verdict = evaluate(found.spec);
        if (verdict.failure == found.failure) {
            found.message = verdict.message;
        } else if (tries_ == 1) {
            found.spec = found.original;
            found.certificate =
                "the shrunk case holds in a fresh process or with the full time limit; shown as "
                "found";
            context_.candidate.restart();
            found.message = evaluate(found.spec).message;
        }
    }

    const Operator& op_;
    const Property& property_;
    const EngineOptions& options_;
    const Clock& clock_;
    const CaseObserver& on_case_;
    KnownMinima& known_;
    const ClassPairs pairs_;
    PropertyContext context_;
    PropertyReport report_;
    double deadline_ = 0, shrink_start_ = 0;
    std::int64_t wanted_ = 0, drawn_ = 0;
    std::size_t replayed_ = 0;  ///< how many of options_.replay were started
    bool replaying_ = true;
    std::optional<Counterexample> failing_;
    std::set<std::string> known_classes_;
    std::unordered_map<std::string, bool> verdicts_;
    int known_timeouts_ = 0, failing_runs_ = 0, tries_ = 1;
    bool budget_spent_ = false;
};

}  // namespace

void add_evidence(std::vector<CastEvidence>& all, const CastEvidence& one) {
    const auto same = std::find_if(
        all.begin(), all.end(), [&](const CastEvidence& known) { return known.word == one.word; });
    if (same == all.end()) return all.push_back(one);
    same->found += one.found;
    same->expected += one.expected;
}

std::string_view name_of(PropertyReport::Status status) {
    switch (status) {
        case PropertyReport::Status::held:
            return "held";
        case PropertyReport::Status::falsified:
            return "falsified";
        case PropertyReport::Status::declined:
            return "declined";
        case PropertyReport::Status::not_implemented:
            return "not_implemented";
        case PropertyReport::Status::error:
            return "error";
    }
    return "error";
}

PropertyReport run_property(const Operator& op, const Property& property, Candidate& candidate,
                            const EngineOptions& options, const Clock& clock,
                            const CaseObserver& on_case, KnownMinima& known) {
    return Search(op, property, candidate, options, clock, on_case, known).run();
}

Verdict check_case(const Property& property, const Spec& spec, PropertyContext& context) {
    context.candidate.restart();
    return property.check(spec, context);
}

GeneratedClasses generated_classes(const std::string& op,
                                   const std::vector<PropertyReport>& properties) {
    constexpr std::int64_t kHandful = 20;
    GeneratedClasses all;
    int counted = 0;
    for (const auto& p : properties) {
        if (p.op != op) continue;
        const auto edited = p.labels.find(kEditedLabel);
        const std::int64_t cases = p.cases - (edited == p.labels.end() ? 0 : edited->second);
        if (cases < kHandful) continue;
        ++counted;
        all.cases += cases;
        for (const auto& [label, count] : p.labels)
            all.percent[label] += 100.0 * static_cast<double>(count) / static_cast<double>(cases);
    }
    for (auto& [label, sum] : all.percent) sum /= counted;
    return all;
}

std::vector<std::string> missing_classes(const Operator& op,
                                         const std::map<std::string, double>& percent) {
    std::vector<std::string> missing;
    for (const RequiredClass& required : op.required_classes()) {
        const auto it = percent.find(required.label);
        const double share = it == percent.end() ? 0 : it->second;
        if (share < required.min_percent)
            missing.push_back(fmt::format("{}: {:.2f} % of cases, at least {} % required",
                                          required.label, share, required.min_percent));
    }
    return missing;
}

}  // namespace attncheck::properties
