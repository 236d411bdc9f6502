// A candidate that lacks some operators, completed with the built-in ones.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

class MixedCandidate final : public Candidate {
public:
    /// Operators that `first` exports are its own, all others `second`'s. The name is `first`'s.
    MixedCandidate(std::unique_ptr<Candidate> first, std::unique_ptr<Candidate> second);

    const CandidateInfo& info() const override { return info_; }
    std::string implementation_of(const std::string& op) const override;
    CallResult run(const Call& call, const RunOptions& options) override;
    /// All calls must be of operators of one of the two.
    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override;
    void restart() override;
    std::string written_during(const std::function<void()>& calls) override { return first_->written_during(calls); }
    void limit_time(std::chrono::duration<double> limit) override;

    const CandidateInfo& first() const { return first_->info(); }
    const CandidateInfo& second() const { return second_->info(); }

private:
    Candidate& of(const std::string& op);

    std::unique_ptr<Candidate> first_, second_;
    CandidateInfo info_;
};

}  // namespace attncheck::properties
