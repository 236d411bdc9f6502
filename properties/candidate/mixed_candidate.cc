#include "properties/candidate/mixed_candidate.h"

#include <algorithm>

namespace attncheck::properties {

MixedCandidate::MixedCandidate(std::unique_ptr<Candidate> first, std::unique_ptr<Candidate> second)
    : first_(std::move(first)), second_(std::move(second)), info_(first_->info()) {
    for (const std::string& op : second_->info().operators)
        if (!info_.implements(op)) info_.operators.push_back(op);
}

Candidate& MixedCandidate::of(const std::string& op) {
    return first_->info().implements(op) ? *first_ : *second_;
}

CallResult MixedCandidate::run(const Call& call, const RunOptions& options) {
    return of(call.op).run(call, options);
}

std::vector<CallResult> MixedCandidate::run_together(std::span<const Call* const> calls,
                                                     int repetitions) {
    return of(calls.front()->op).run_together(calls, repetitions);
}

void MixedCandidate::restart() {
    first_->restart();
    second_->restart();
}

void MixedCandidate::limit_time(std::chrono::duration<double> limit) {
    first_->limit_time(limit);
    second_->limit_time(limit);
}

Sources sources_of(const Operator& op, const Candidate& candidate) {
    Sources out;
    if (!op.is_composition()) return out;
    for (const std::string& entry : op.entry_points())
        out.emplace_back(entry, implementation_of(candidate, entry));
    return out;
}

std::string implementation_of(const Candidate& candidate, const std::string& op) {
    const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
    return mixed && !mixed->first().implements(op) ? mixed->second().name : candidate.info().name;
}

}  // namespace attncheck::properties
