#include "properties/laws/companions.h"

#include <atomic>

namespace attncheck::properties {
namespace {

std::atomic<CompanionCalls> provided{nullptr};

}  // namespace

void provide_companions(CompanionCalls calls) { provided = calls; }

std::vector<Call> companions_of(const Spec& spec, const CandidateInfo& info) {
    const CompanionCalls calls = provided;
    return calls ? calls(spec, info) : std::vector<Call>{};
}

}  // namespace attncheck::properties
