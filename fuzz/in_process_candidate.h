// The built-in implementation called in the process of the fuzz target, so that sanitizers and
// coverage see it; buffers lie between guard pages as they do for a worker.
#pragma once

#include "properties/candidate/arena.h"
#include "properties/candidate/candidate.h"

namespace attncheck::fuzz {

class InProcessCandidate : public properties::Candidate {
public:
    InProcessCandidate();
    const properties::CandidateInfo& info() const override { return info_; }

    /// Always `returned`: whatever else can happen ends the process.
    properties::CallResult run(const properties::Call& call,
                               const properties::RunOptions& options) override;

    /// One after the other.
    std::vector<properties::CallResult> run_together(std::span<const properties::Call* const> calls,
                                                     int repetitions) override;

    void restart() override {}
    void limit_time(std::chrono::duration<double>) override {}

private:
    properties::CandidateInfo info_;
    properties::Arena arena_;
};

}  // namespace attncheck::fuzz
