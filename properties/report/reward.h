// One number for how far a library came, for programs that improve kernels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "properties/report/results.h"

namespace attncheck::properties {

/// The laws of judge mode. They run in this order, that of every operator: what `agreement` does not
/// see is for the laws behind it.
inline constexpr std::string_view kLadder[] = {"agreement",  "deviation",  "non_finite", "memory",
                                               "repeatable", "concurrent", "history"};

struct Grade {
    double reward = 0;   ///< in [0, 1]; 1: every law of every operator held; at most 0.95 of an inconclusive run
    std::string verdict; ///< "held", "falsified", "partial", "inconclusive", "not_judged"
    std::string feedback;                ///< a sentence: why a call gave no outputs, but no expected values
    const PropertyReport* law = nullptr;  ///< the first that did not hold
};

/// Half of an operator's reward is for `agreement`, the other half in equal parts for the laws behind
/// it. A law that is falsified gives the share of its `cases` that came before the failure, and the
/// laws behind it give nothing: they were not tried. Operators count alike. A library that declines
/// cases it was not allowed to decline is `partial` and gets half.
Grade grade_of(const RunReport& report, std::int64_t cases);

}  // namespace attncheck::properties
