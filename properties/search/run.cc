#include "properties/search/run.h"

#include <algorithm>
#include <iterator>
#include <ostream>

#include "properties/candidate/candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/search/run_steps.h"
#include "properties/search/searches.h"

namespace attncheck::properties {

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
    Searches searches(candidate, options, clock, of_all_operators(options.engine.features));
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

}  // namespace attncheck::properties
