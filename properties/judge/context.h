// What a case is judged with: the candidate, and what it is allowed to be wrong by.
#pragma once

#include <cstdint>

#include "properties/judge/sampling.h"
#include "ref/bounds/error_bound.h"

namespace attncheck::properties {

class Candidate;
struct ToleranceRule;

struct PropertyContext {
    Candidate& candidate;
    ref::RoundingClass rounding;
    const ToleranceRule* rule = nullptr;  ///< judges agreement in place of the error bounds
    std::int64_t samples = kSampledRows;  ///< random rows, and random keys, that `sampled` checks
};

}  // namespace attncheck::properties
