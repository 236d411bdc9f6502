// What a case is judged with: the candidate, and what it is allowed to be wrong by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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
    /// "flash_attention_score.softmax_max": what the candidate declares not to give, of all operators.
    std::vector<std::string> missing_outputs = {};

    bool gives_all_of(const std::string& op) const {
        return std::ranges::none_of(missing_outputs, [&](const std::string& output) {
            return output.starts_with(op + ".");
        });
    }
};

}  // namespace attncheck::properties
