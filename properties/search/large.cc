#include "properties/search/large.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "properties/candidate/candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr const char* kProperty = "sampled";

bool chosen(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// All cases of one operator.
class LargeRun {
public:
    LargeRun(const Operator& op, Candidate& candidate, const VerifyOptions& options,
             const Clock& clock, const RunReport& run, std::ostream& out)
        : op_(op),
          property_(*op.property(kProperty)),
          candidate_(candidate),
          options_(options),
          clock_(clock),
          run_(run),
          out_(out),
          context_{candidate, options.engine.rounding, nullptr, options.engine.samples} {
        report_.op = op.name();
        report_.property = kProperty;
    }

    PropertyReport run(const std::vector<Spec>& cases) {
        const double start = clock_.now();
        for (const Spec& spec : cases) {
            if (clock_.interrupted() || report_.status == PropertyReport::Status::error) break;
            check(spec);
            if (options_.stop_at_first && !report_.counterexamples.empty()) break;
        }
        report_.seconds = clock_.now() - start;
        report_.interrupted = clock_.interrupted();
        if (!report_.counterexamples.empty())
            report_.status = PropertyReport::Status::falsified;
        else if (report_.status != PropertyReport::Status::error && report_.cases == 0)
            report_.status = PropertyReport::Status::declined;
        return std::move(report_);
    }

private:
    void check(const Spec& spec) {
        const double start = clock_.now();
        out_ << fmt::format("\n{}\n", print(spec)) << std::flush;
        Verdict verdict;
        try {
            verdict = check_case(property_, spec, context_);
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
        if (verdict.kind == Verdict::Kind::inapplicable) return;
        ++report_.cases;
        report_.worst_ratio = std::max(report_.worst_ratio, verdict.worst_ratio);
        if (verdict.failed()) return falsify(spec, verdict, clock_.now() - start);
        report_.coverage.push_back(print(spec) + "\n" + verdict.message);
        out_ << verdict.message
             << fmt::format("\n  held, worst error {:.3g} of its bound, {:.1f} s\n",
                            verdict.worst_ratio, clock_.now() - start)
             << std::flush;
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
            if (op_.illegal(small) || (property_.domain && !property_.domain(small))) continue;
            ++tried;
            if (check_case(property_, small, context_).failure != verdict.failure) continue;
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
    PropertyContext context_;
    PropertyReport report_;
};

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

void verify_large(Candidate& candidate, const VerifyOptions& options, Int length,
                  const Clock& clock, RunReport& report, std::ostream& out) {
    const double start = clock.now();
    for (const auto& op : operators()) {
        if (!chosen(options.operators, op->name()) || !op->property(kProperty)) continue;
        if (clock.interrupted()) break;
        PropertyReport one;
        if (op->implemented_by(candidate.info())) {
            std::vector<Spec> cases = op->large_cases(length, options.engine.seed);
            for (Spec& spec : cases) spec.profile = options.engine.profile;
            one = LargeRun(*op, candidate, options, clock, report, out).run(cases);
        } else {
            one.op = op->name();
            one.property = kProperty;
            one.status = PropertyReport::Status::not_implemented;
        }
        const bool falsified = !one.counterexamples.empty();
        report.properties.push_back(std::move(one));
        report.duration_s = clock.now() - start;
        if (options.stop_at_first && falsified) break;
    }
    report.interrupted = clock.interrupted();
}

}  // namespace attncheck::properties
