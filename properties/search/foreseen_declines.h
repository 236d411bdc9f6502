// Calls that a candidate would decline, known from those that it declined: laws make calls that no case describes,
// such as the same problem in another layout.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {

/// A candidate that is not asked again for what it declines. A trait of a call is an argument with its kind of value:
/// a text, a mode, a type, a memory order, presence. A call with a trait, or with two traits together, that some declined
/// calls had and no accepted one is declined without being made. One of sixteen such calls is made all the same.
class ForeseenDeclines final : public Candidate {
public:
    explicit ForeseenDeclines(Candidate& candidate) : candidate_(candidate) {}

    /// Off: every call is made, and says nothing of others.
    void turn(bool on) { is_on_ = on; }
    /// As before the first call.
    void forget() {
        foreseen_ = 0, counts_.clear(), accepted_.clear(), waiting_.clear(), any_declined_ = false;
    }

    const CandidateInfo& info() const override { return candidate_.info(); }
    std::string implementation_of(const std::string& op) const override {
        return candidate_.implementation_of(op);
    }
    CallResult run(const Call& call, const RunOptions& options) override;
    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override {
        return candidate_.run_together(calls, repetitions);
    }
    void restart() override { candidate_.restart(); }
    void limit_time(std::chrono::duration<double> limit) override { candidate_.limit_time(limit); }

private:
    using Traits = std::vector<std::uint64_t>;  ///< the last one is of the operator alone
    struct Count {
        int accepted = 0, declined = 0;
    };
    bool is_foreseen(const Traits& traits) const;
    void note(const Traits& traits, bool is_declined);
    void count(const Traits& traits, bool is_declined);

    Candidate& candidate_;
    bool is_on_ = true;
    int foreseen_ = 0;
    std::unordered_map<std::uint64_t, Count> counts_;  ///< of traits, and of pairs of them
    std::unordered_set<std::uint64_t> accepted_;  ///< lists of traits: most calls are like one before
    bool any_declined_ = false;
    std::vector<Traits> waiting_;  ///< accepted lists that are counted with the first declined one
};

}  // namespace attncheck::properties
