// How far errors stay below bounds other than the declared one: the probabilistic bound, and the
// bounds of narrower rounding classes. A declaration that is wider than the errors seen is said.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/judge/verdict.h"

namespace attncheck::properties {

/// The worst ratios of a call's outputs that hold, for the probabilistic bound and for the declared
/// class without each of its words. The ratio of `exp=N` is the N that the errors need.
/// `rigorous` is the ratio of the same call for the bound that judges.
std::vector<BoundEvidence> bound_evidence(
    double rigorous, const Call& call, const CallResult& result, const ref::RoundingClass& declared,
    const std::function<ExpectedOutputs(const ref::RoundingClass&)>& expected);

/// "bounds: worst error 0.4 of the rigorous bound, 0.7 of the probabilistic one (12 cases)\n"; empty
/// without evidence.
std::string beside_rigorous(const std::vector<BoundEvidence>& evidence);

/// "exp <= 6; split=lse is not needed": of words that are wider than the errors; empty: of none.
std::string narrower_words(const ref::RoundingClass& declared,
                           const std::vector<BoundEvidence>& evidence);

}  // namespace attncheck::properties
