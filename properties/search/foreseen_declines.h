// Calls that a candidate would decline, known from those that it declined: laws make calls that no case describes,
// such as the same problem in another layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "properties/search/filtered_candidate.h"

namespace attncheck::properties {

/// The answer of a candidate that does not take the call.
CallResult declined_call(std::string detail = {});

/// A candidate that is not asked again for what it declines. A trait of a call is an argument with its kind of value:
/// a text, a mode, a type, a memory order, presence. A call with a trait, or with two traits together, that some declined
/// calls had and no accepted one is declined without being made, as is a call outside of what was learned of the cases.
/// One of sixteen such calls is made all the same, the first one outside among them.
class ForeseenDeclines final : public FilteredCandidate {
public:
    /// Calls of a case inside the scope, as far as is known; empty: all are.
    using Inside = std::function<bool(const Call&)>;
    explicit ForeseenDeclines(Candidate& candidate, Inside inside = {})
        : FilteredCandidate(candidate), inside_(std::move(inside)) {}

    enum class Mode {
        off,        ///< every call is made, and says nothing of others
        exploring,  ///< the same, but nothing else of a case is asked for once a call of it was declined
        on
    };
    /// From the next case on.
    void turn(Mode mode) { mode_ = mode, is_case_declined_ = false; }
    /// As before the first call.
    void forget() {
        foreseen_ = outside_ = 0, is_inside_trusted_ = true, counts_.clear(), accepted_.clear(), declined_.clear(), waiting_.clear(), any_declined_ = false;
    }

    CallResult run(const Call& call, const RunOptions& options) override;
    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override;

private:
    using Traits = std::vector<std::uint64_t>;  ///< the last one is of the operator alone
    struct Count {
        int accepted = 0, declined = 0;
    };
    bool declines(const Call& call, const Traits& traits);
    bool is_foreseen(const Traits& traits) const;
    void learn(const Traits& traits, bool is_declined);
    void note(const Traits& traits, bool is_declined);
    void count(const Traits& traits, bool is_declined);

    Inside inside_;
    Mode mode_ = Mode::on;
    bool is_case_declined_ = false;  ///< while exploring
    int foreseen_ = 0, outside_ = 0;
    bool is_trial_ = false;  ///< the call now is one outside, made all the same
    bool is_inside_trusted_ = true;
    std::unordered_map<std::uint64_t, Count> counts_;  ///< of traits, and of pairs of them
    std::unordered_set<std::uint64_t> accepted_, declined_;  ///< lists of traits: most calls are like one before
    bool any_declined_ = false;
    std::vector<Traits> waiting_;  ///< accepted lists that are counted with the first declined one
};

}  // namespace attncheck::properties
