// What a case is judged with: the candidate, and what it is allowed to be wrong by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/judge/sampling.h"
#include "ref/bounds/error_bound.h"

namespace attncheck::properties {

class Candidate;
struct Call;
struct CandidateInfo;
struct Spec;
struct ToleranceRule;

/// Small legal calls of operators that the candidate has and that are not the case's own. A function
/// of the case's seed.
using CompanionCalls = std::vector<Call> (*)(const Spec& spec, const CandidateInfo& info);

struct PropertyContext {
    Candidate& candidate;
    ref::RoundingClass rounding;
    const ToleranceRule* rule = nullptr;  ///< judges agreement in place of the error bounds
    std::int64_t samples = kSampledRows;  ///< random rows, and random keys, that `sampled` checks
    /// "flash_attention_score.softmax_max": what the candidate declares not to give, of all operators.
    std::vector<std::string> missing_outputs = {};
    /// Whether a case has the features that the candidate declares; empty: it declares none.
    std::function<bool(const Spec&)> declared = {};
    CompanionCalls companions = nullptr;  ///< made at the same time as calls of the case; null: none

    /// A law that changes a case asks for no other ones.
    bool takes(const Spec& spec) const { return !declared || declared(spec); }
    bool gives_all_of(const std::string& op) const {
        return std::ranges::none_of(missing_outputs, [&](const std::string& output) {
            return output.starts_with(op + ".");
        });
    }
};

}  // namespace attncheck::properties
