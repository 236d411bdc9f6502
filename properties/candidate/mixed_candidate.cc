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
    const auto entries = op.entry_points();
    if (entries.size() < 2) return {};
    Sources out;
    for (const std::string& entry : entries)
        out.emplace_back(entry, implementation_of(candidate, entry));
    return out;
}

std::string implementation_of(const Candidate& candidate, const std::string& op) {
    const auto* mixed = dynamic_cast<const MixedCandidate*>(&candidate);
    return mixed && !mixed->first().implements(op) ? mixed->second().name : candidate.info().name;
}

ref::RoundingClass weaker(const ref::RoundingClass& a, const ref::RoundingClass& b) {
    ref::RoundingClass out;
    // -1 stands for the roundoff of the storage type, which is the largest.
    const bool half = a.accumulator_roundoff < 0 || b.accumulator_roundoff < 0;
    out.accumulator_roundoff = half ? -1 : std::max(a.accumulator_roundoff, b.accumulator_roundoff);
    out.prob_rounded = a.prob_rounded || b.prob_rounded;
    out.score_grad_rounded = a.score_grad_rounded || b.score_grad_rounded;
    out.flush_bf16_subnormals = a.flush_bf16_subnormals || b.flush_bf16_subnormals;
    return out;
}

}  // namespace attncheck::properties
