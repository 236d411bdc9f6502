// A candidate that lacks some operators, completed with the built-in ones.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

/// Each operator and whose implementation of it is run, in the order of module_operators().
using Sources = std::vector<std::pair<std::string, std::string>>;

class MixedCandidate final : public Candidate {
public:
    /// Operators that `first` exports are its own, all others `second`'s. The name is `first`'s.
    MixedCandidate(std::unique_ptr<Candidate> first, std::unique_ptr<Candidate> second);

    const CandidateInfo& info() const override { return info_; }
    CallResult run(const Call& call, const RunOptions& options) override;
    /// All calls must be of operators of one of the two.
    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override;
    void restart() override;
    void limit_time(std::chrono::duration<double> limit) override;

    const CandidateInfo& first() const { return first_->info(); }
    const CandidateInfo& second() const { return second_->info(); }

private:
    Candidate& of(const std::string& op);

    std::unique_ptr<Candidate> first_, second_;
    CandidateInfo info_;
};

/// Whose operators the composition `op` runs on; empty when a candidate has none of its own to
/// name, i.e. for an operator with one entry point.
Sources sources_of(const Operator& op, const Candidate& candidate);

/// The name of whose implementation of an operator this candidate runs.
std::string implementation_of(const Candidate& candidate, const std::string& op);

}  // namespace attncheck::properties
