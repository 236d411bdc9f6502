#include "properties/search/large.h"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <ostream>
#include <utility>

#include "properties/candidate/candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/report/json.h"
#include "properties/report/table.h"
#include "properties/search/parallel.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr const char* kProperty = "sampled";

/// A field that goes with one that has been changed, such as what lies in keys that are hidden no longer, has its usual value;
/// sequences are of one length where a layout wants that.
void make_legal(const Operator& op, const Scope& scope, Spec& spec) {
    if (!op.illegal(spec)) return;
    const auto takes = [&](const Spec& other) {
        const bool is_better = !op.illegal(other) && scope.holds(other);
        if (is_better) spec = other;
        return is_better;
    };
    Spec alike = spec;
    for (auto& list : alike.lists) std::ranges::fill(list, list.empty() ? 0 : std::ranges::max(list));
    for (Spec& from : std::array{spec, alike}) {
        if (takes(from)) return;
        for (std::size_t i = 0; i < from.numbers.size(); ++i) {
            const NumberField& field = spec.schema->numbers[i];
            if (field.fallback < field.min || from.numbers[i] == field.fallback) continue;
            Spec usual = from;
            usual.numbers[i] = field.fallback;
            if (takes(usual)) return;
        }
    }
}

/// All cases of one operator.
class LargeRun {
public:
    LargeRun(const Operator& op, Candidate& candidate, const VerifyOptions& options,
             const Clock& clock, const RunReport& run, std::ostream& out,
             std::function<void(const PropertyReport&)> tell)
        : op_(op),
          property_(*op.property(kProperty)),
          candidate_(candidate),
          options_(options),
          clock_(clock),
          run_(run),
          out_(out),
          tell_(std::move(tell)),
          context_{candidate, options.engine.rounding, nullptr, options.engine.samples,
                   missing_outputs(options.engine.features, operators())} {
        report_.op = op.name();
        report_.property = kProperty;
    }

    PropertyReport run(const std::vector<Spec>& cases) {
        const double start = clock_.now();
        for (const Spec& spec : cases) {
            if (clock_.interrupted() || report_.status == PropertyReport::Status::error) break;
            check(spec);
            out_.flush();
            tell_(report_);
            if (options_.stop_at_first && !report_.counterexamples.empty()) break;
        }
        report_.seconds = clock_.now() - start;
        report_.interrupted = clock_.interrupted();
        if (!report_.counterexamples.empty())
            report_.status = PropertyReport::Status::falsified;
        else if (report_.cases == 0 && report_.status == PropertyReport::Status::held)
            report_.status = report_.note.empty() ? PropertyReport::Status::declined : PropertyReport::Status::inconclusive;
        if (report_.cases > 0 && report_.status != PropertyReport::Status::error)
            report_.note = unchecked_ == 0 ? "" : fmt::format("{} of {} cases of full size were not checked", unchecked_, cases.size());
        return std::move(report_);
    }

private:
    void check(const Spec& spec) {
        const double start = clock_.now();
        out_ << fmt::format("\n{}\n", print(spec)) << std::flush;
        if (!is_taken(spec)) {
            ++unchecked_;
            if (report_.note.empty()) report_.note = "nothing was checked: no case of full size is inside of what is declared";
            out_ << (op_.illegal(spec) ? "  not checked: no legal case like it is inside of what is declared\n"
                                       : "  not checked: outside of what the candidate declares that it takes\n");
            return;
        }
        Verdict verdict;
        try {
            verdict = check_case(property_, spec, context_);
        } catch (const Stopped&) {
            return;
        } catch (const std::exception& e) {
            report_.status = PropertyReport::Status::error;
            report_.note = fmt::format("{}: {}", print(spec), e.what());
            return;
        }
        if (verdict.kind == Verdict::Kind::declined) {
            ++report_.declined;
            out_ << "  declined\n";
            return;
        }
        if (verdict.kind == Verdict::Kind::inapplicable) {
            ++unchecked_;
            if (report_.note.empty()) report_.note = "nothing was checked: " + verdict.message;
            out_ << "  not checked" << (verdict.message.empty() ? "" : ": ") << verdict.message << "\n";
            return;
        }
        ++report_.cases;
        report_.worst_ratio = std::max(report_.worst_ratio, verdict.worst_ratio);
        if (verdict.failed()) return falsify(spec, verdict, clock_.now() - start);
        report_.coverage.push_back(print(spec) + "\n" + verdict.message);
        out_ << verdict.message
             << fmt::format("\n  held, worst error {:.3g} of its bound, {:.1f} s\n",
                            verdict.worst_ratio, clock_.now() - start)
             << std::flush;
    }

    /// Legal, and inside of what the candidate declares.
    bool is_taken(const Spec& spec) const {
        const Survey* const known = options_.engine.survey;
        return !op_.illegal(spec) && (!property_.domain || property_.domain(spec)) && (!known || known->scope.holds(spec));
    }

    void falsify(const Spec& spec, const Verdict& verdict, double seconds) {
        for (const auto& known : report_.counterexamples)
            if (known.failure == verdict.failure) {
                out_ << fmt::format("  wrong: {} here too\n", verdict.failure) << std::flush;
                return;
            }
        out_ << fmt::format("  wrong: {}; looking for it in smaller cases\n", verdict.failure)
             << std::flush;
        Counterexample found = smaller(spec, verdict, seconds);
        found.original = spec;
        found.case_number = static_cast<int>(report_.cases);
        found.found_message = verdict.message;
        print_counterexample(out_, run_, report_, found);
        out_.flush();
        report_.counterexamples.push_back(std::move(found));
    }

    /// The first small version that fails in the same way, shrunk; the case itself without one.
    /// It is shrunk as well when it takes little time.
    Counterexample smaller(const Spec& spec, const Verdict& verdict, double seconds) {
        const double start = clock_.now(), limit = std::max(options_.engine.shrink_seconds, 1.0);
        int tried = 0;
        bool stopped = false;
        std::vector<Spec> versions = smaller_versions(spec);
        if (seconds < limit / 10) versions.push_back(spec);
        for (const Spec& small : versions) {
            stopped = clock_.interrupted() || clock_.now() - start > limit;
            if (stopped) break;
            if (!is_taken(small)) continue;
            ++tried;
            try {
                if (check_case(property_, small, context_).failure != verdict.failure) continue;
            } catch (const Stopped&) {
                stopped = true;
                break;
            }
            EngineOptions engine = options_.engine;
            engine.replay = {small};
            engine.replay_only = true;
            KnownMinima known;
            PropertyReport shrunk = run_property(
                op_, property_, candidate_, engine, clock_, [](const PropertyReport&) {}, known);
            if (!shrunk.counterexamples.empty()) return std::move(shrunk.counterexamples.front());
        }
        Counterexample whole;
        whole.spec = spec;
        whole.failure = verdict.failure;
        whole.message = verdict.message;
        whole.tier = property_.tier_of(verdict);
        whole.neighbours_tried = tried;
        whole.certificate = fmt::format("{} smaller versions were tried and hold{}", tried,
                                        stopped ? "; search stopped, others may not" : "");
        whole.shrink_seconds = clock_.now() - start;
        return whole;
    }

    const Operator& op_;
    const Property& property_;
    Candidate& candidate_;
    const VerifyOptions& options_;
    const Clock& clock_;
    const RunReport& run_;
    std::ostream& out_;
    std::function<void(const PropertyReport&)> tell_;  ///< after each case
    PropertyContext context_;
    PropertyReport report_;
    std::size_t unchecked_ = 0;
};

/// What the pool's process says of operator `number` of the catalogue, as far as it gets: an interrupted run does not wait
/// for a reference. `nothing` is the report when the process dies before it says anything.
PropertyReport answer_of(Processes& pool, std::size_t number, const Clock& clock,
                         PropertyReport nothing) {
    constexpr double kGrace = 0.2;  ///< seconds: gigabytes have to be freed in the rest of one
    std::optional<double> told;
    pool.ask(0, std::to_string(number));
    for (;;) {
        if (clock.interrupted() && !told) {
            pool.signal(SIGINT);
            told = clock.now();
        }
        if (told && clock.now() - *told > kGrace) pool.give_up();
        Processes::Answer answer;
        if (!pool.wait(0.1, answer)) continue;
        if (!answer.lost) {
            PropertyReport one = property_from_text(answer.text, schemas());
            if (answer.is_final) return one;
            nothing = std::move(one);
            nothing.interrupted = true;
            nothing.status = PropertyReport::Status::error;
            nothing.note = "its process ended without an answer";
            continue;
        }
        nothing.note = answer.why;
        if (!nothing.counterexamples.empty())
            nothing.status = PropertyReport::Status::falsified;
        else if (told && nothing.cases > 0)
            nothing.status = PropertyReport::Status::held;
        else if (told)
            nothing.status = PropertyReport::Status::declined;
        if (told) nothing.note = "interrupted";
        return nothing;
    }
}

}  // namespace

std::vector<Spec> smaller_versions(const Spec& spec) {
    constexpr Int kTile = 256;
    std::vector<Spec> out;
    const auto add = [&](const auto& shorter) {
        Spec small = spec;
        for (auto& list : small.lists)
            for (Int& length : list) length = std::min(length, shorter(length));
        if (!(small == spec) && (out.empty() || !(small == out.back()))) out.push_back(small);
    };
    for (Int limit = 32; limit < kLongestLarge; limit *= 2) {
        add([&](Int) { return limit; });
        add([&](Int) { return limit + 7; });
        if (limit >= kTile) add([&](Int length) { return limit + length % kTile; });
    }
    return out;
}

std::string forward_of(const Operator& op) {
    constexpr std::string_view kGradient = "_grad";
    const std::string& name = op.name();
    if (!name.ends_with(kGradient) || !op.property(kProperty)) return {};
    return name.substr(0, name.size() - kGradient.size());
}

void verify_large(const CandidateInfo& info,
                  const std::function<std::unique_ptr<Candidate>()>& open,
                  const VerifyOptions& options, Int length, const Clock& clock, RunReport& report,
                  std::ostream& out) {
    const double start = clock.now();
    const auto& all = operators();
    Processes pool(1, [&]() -> Processes::Serve {
        const std::shared_ptr<Candidate> candidate = open();
        return [&, candidate](const std::string& number, const Processes::Tell& tell) {
            const Operator& op = *all[std::stoul(number)];
            VerifyOptions own = options;
            Survey known{.scope = Scope(op), .taken = {}, .reason = {}};
            known.scope.restrict_to(features_of(options.engine.features, op.name()));
            if (known.scope.is_declared()) own.engine.survey = &known;
            std::vector<Spec> cases = op.large_cases(length, options.engine.seed);
            for (Spec& spec : cases) {
                spec.profile = options.engine.profile, spec.withheld = known.scope.withheld();
                Random random(spec.seed);
                if (own.engine.survey && !known.scope.holds(spec)) known.scope.mend(spec, random);
                if (own.engine.survey) make_legal(op, known.scope, spec);
            }
            return property_to_text(
                LargeRun(op, *candidate, own, clock, report, out,
                         [&](const PropertyReport& now) { tell(property_to_text(now)); })
                    .run(cases));
        };
    });
    for (std::size_t number = 0; number < all.size(); ++number) {
        const auto& op = all[number];
        if (!is_chosen(options.operators, op->name()) || !op->property(kProperty)) continue;
        if (clock.interrupted()) break;
        PropertyReport one;
        one.op = op->name();
        one.property = kProperty;
        one.status = PropertyReport::Status::error;
        one.note = "its process ended without an answer";
        const auto before = std::ranges::find(options.finished, op->name(), &PropertyReport::op);
        if (before != options.finished.end()) {
            one = *before;
        } else if (!op->implemented_by(info)) {
            one.status = PropertyReport::Status::not_implemented;
            one.note.clear();
        } else if (pool.any_idle()) {
            one = answer_of(pool, number, clock, std::move(one));
        }
        const bool falsified = !one.counterexamples.empty();
        if (one.status == PropertyReport::Status::held && !one.note.empty()) report.notes.push_back(op->name() + ": " + one.note);
        report.properties.push_back(std::move(one));
        report.duration_s = clock.now() - start;
        if (options.save) {
            RunReport now = report;
            now.interrupted = true;
            options.save(now);
        }
        if (options.stop_at_first && falsified) break;
    }
    report.interrupted = clock.interrupted();
}

}  // namespace attncheck::properties
