// A candidate that stands before another one and may answer some calls itself.
#pragma once

#include <functional>
#include <string>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

/// Everything but the calls is the other candidate's.
class FilteredCandidate : public Candidate {
public:
    explicit FilteredCandidate(Candidate& candidate) : candidate_(candidate) {}

    const CandidateInfo& info() const override { return candidate_.info(); }
    std::string implementation_of(const std::string& op) const override {
        return candidate_.implementation_of(op);
    }
    void restart() override { candidate_.restart(); }
    std::string written_during(const std::function<void()>& calls) override {
        return candidate_.written_during(calls);
    }
    void limit_time(std::chrono::duration<double> limit) override { candidate_.limit_time(limit); }

protected:
    Candidate& candidate_;
};

}  // namespace attncheck::properties
