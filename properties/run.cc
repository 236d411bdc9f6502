#include "properties/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ostream>

#include "properties/mixed_candidate.h"

namespace attncheck::properties {
namespace {

volatile sig_atomic_t g_interrupted = 0;

class SystemClock final : public Clock {
public:
    double now() const override {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    bool interrupted() const override { return g_interrupted != 0; }
};

bool chosen(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// Rewrites one terminal line at most ten times a second.
class Progress {
public:
    Progress(std::ostream* out, const Clock& clock)
        : out_(out), clock_(clock), start_(clock.now()) {}
    ~Progress() { erase(); }
    void show(const PropertyReport& now, std::size_t index, std::size_t total, std::int64_t wanted,
              double deadline) {
        ++cases_;
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

/// Quotas of an operator, judged over every unedited case generated for it; too few are not judged.
void judge_classes(const Operator& op, RunReport& report) {
    constexpr std::int64_t kEnough = 1000;
    std::map<std::string, std::int64_t> labels;
    std::int64_t cases = 0, declined = 0;
    for (const auto& p : report.properties) {
        if (p.op != op.name()) continue;
        for (const auto& [label, count] : p.labels) labels[label] += count;
        const auto edited = p.labels.find(kEditedLabel);
        cases += p.cases - (edited == p.labels.end() ? 0 : edited->second);
        declined += p.declined;
    }
    PropertyReport verdict;
    verdict.op = op.name();
    verdict.property = "required_classes";
    if (cases < kEnough) {
        verdict.note = fmt::format("not judged: {} cases, at least {} needed", cases, kEnough);
        verdict.status = PropertyReport::Status::declined;
        report.properties.push_back(std::move(verdict));
        return;
    }
    const auto missing = missing_classes(op, labels, cases);
    for (const auto& one : missing) verdict.note += (verdict.note.empty() ? "" : "; ") + one;
    if (!missing.empty()) {
        verdict.status =
            declined > 0 ? PropertyReport::Status::declined : PropertyReport::Status::error;
        if (declined > 0) verdict.note = "the candidate declined cases: " + verdict.note;
    }
    report.properties.push_back(std::move(verdict));
}

}  // namespace

const Clock& system_clock() {
    static const SystemClock clock;
    return clock;
}

void catch_interrupts() {
    struct sigaction action{};
    // A second Ctrl-C ends the program at once. What comes within a second is the same one: some
    // senders signal the process and then its whole group.
    action.sa_handler = [](int) {
        static volatile time_t first = 0;
        if (g_interrupted && time(nullptr) - first > 1) _exit(130);
        if (!g_interrupted) first = time(nullptr);
        g_interrupted = 1;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

void verify(Candidate& candidate, const VerifyOptions& options, const Clock& clock,
            RunReport& report, std::ostream& out, std::ostream* progress_out) {
    const double start = clock.now();
    std::vector<std::pair<const Operator*, const Property*>> work;
    for (const auto& op : operators()) {
        if (!chosen(options.operators, op->name())) continue;
        for (const Property& property : op->properties()) {
            if (!chosen(options.properties, property.name) ||
                (property.validation && !options.validation))
                continue;
            work.emplace_back(op.get(), &property);
        }
    }
    for (const auto& op : operators())
        if (chosen(options.operators, op->name()) && op->implemented_by(candidate.info()))
            for (const auto& [entry, name] : sources_of(*op, candidate))
                report.sources.push_back({op->name(), entry, name});
    const double deadline = options.total_seconds > 0 ? start + options.total_seconds : 0;
    Progress progress(progress_out, clock);
    KnownMinima known;
    for (std::size_t i = 0; i < work.size(); ++i) {
        const auto [op, property] = work[i];
        PropertyReport one;
        if (!op->implemented_by(candidate.info())) {
            one.op = op->name();
            one.property = property->name;
            one.status = PropertyReport::Status::not_implemented;
        } else if (!clock.interrupted()) {
            EngineOptions engine = options.engine;
            if (options.total_seconds >
                0)  // shrinking may take a run a little past its time, not far
                engine.shrink_seconds =
                    std::min(std::max(options.total_seconds / 4, 2.0), engine.shrink_seconds);
            if (deadline > 0)
                engine.seconds = std::max(
                    0.001, (deadline - clock.now()) / static_cast<double>(work.size() - i));
            one = run_property(
                *op, *property, candidate, engine, clock,
                [&](const PropertyReport& now) {
                    progress.show(now, i, work.size(), engine.cases, deadline);
                },
                known);
        } else {
            continue;
        }
        report.properties.push_back(std::move(one));
        report.duration_s = clock.now() - start;
        for (const auto& found : report.properties.back().counterexamples) {
            progress.erase();
            print_counterexample(out, report, report.properties.back(), found);
            out.flush();
        }
        const bool last_of_operator = i + 1 == work.size() || work[i + 1].first != op;
        if (last_of_operator && options.properties.empty() &&
            op->implemented_by(candidate.info()) && !clock.interrupted() &&
            options.engine.shards == 1)
            judge_classes(*op, report);
        if (options.stop_at_first && !report.properties.back().counterexamples.empty()) break;
    }
    report.duration_s = clock.now() - start;
    report.interrupted = clock.interrupted();
}

}  // namespace attncheck::properties
