// A candidate that is asked for no call outside of what it declares, whatever a law changes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "properties/case/spec.h"
#include "properties/search/filtered_candidate.h"

namespace attncheck::properties {

/// Calls whose case is not `declared` are declined without being made. An empty function declares
/// nothing, and all are.
class DeclaredCalls final : public FilteredCandidate {
public:
    DeclaredCalls(Candidate& candidate, std::function<bool(const Spec&)> declared)
        : FilteredCandidate(candidate), declared_(std::move(declared)) {}

    /// Off: every call is made, as for a case that is not declared itself, and for edited calls.
    void turn(bool on) { is_on_ = on; }

    CallResult run(const Call& call, const RunOptions& options) override;
    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override;

private:
    bool takes(const Call& call) const;

    std::function<bool(const Spec&)> declared_;
    bool is_on_ = true;
};

}  // namespace attncheck::properties
