// What the second and third tier found, in words: the defect with its size, the rounding class the
// errors look like, and a map of where.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "properties/judge/tiers.h"

namespace attncheck::properties {

struct SliceName {
    enum class Kind { all, sequence, head, last_tile, lane, channel } kind = Kind::all;
    std::int64_t index = 0;
    auto operator<=>(const SliceName&) const = default;
};

struct Finding {
    enum class Kind { element, slice, filter } kind = Kind::element;
    SliceName slice;
    std::size_t element = 0;
    std::size_t probe = 0;    ///< of a filter
    double coefficient = 0;
    double statistic = 0, limit = 0, rms = 0;
    std::int64_t rows = 0;
};

/// Fills failure, message and tier.
void describe_finding(const TierTensor& tensor, const Finding& found,
                      const ref::RoundingClass& declared,
                      const std::optional<ref::RoundingClass>& coarser, const std::string& cause,
                      Verdict& verdict);

/// The cause of an error that is `rms` times as large as rounding: the defect or hypothesis whose direction it has, with
/// its size; empty when none has nine tenths of what rounding leaves. hypothesis_only: nor when a defect has more of it.
std::string likely_cause(const TierTensor& tensor, const std::vector<Hypothesis>& hypotheses, double rms,
                         bool hypothesis_only);

/// "p=half" or "p=fp32" as the evidence of a run has it; empty when there is too little.
std::string looks_like(const CastEvidence& evidence);

/// The rounding class that the evidence looks like, as --precision takes it.
std::string words_of(const std::vector<CastEvidence>& casts);

}  // namespace attncheck::properties
