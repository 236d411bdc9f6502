#include "properties/candidate/mixed_candidate.h"

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

std::string MixedCandidate::implementation_of(const std::string& op) const {
    return (first_->info().implements(op) ? first_ : second_)->info().name;
}

}  // namespace attncheck::properties
