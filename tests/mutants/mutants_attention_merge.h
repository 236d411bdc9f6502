// Defects of AttentionMerge. Legend: include/attncheck/candidate.h.
#pragma once

#include "mutant.h"

namespace attncheck::mutants {

inline constexpr Operators kAttentionMerge{"AttentionMerge", "AttentionMerge", true, false,
                                           "attention_merge"};

inline constexpr Mutant kAttentionMergeMutants[] = {
    {"AM-01", kAttentionMerge, kEasy, "weights exp(lse_p) without the maximum taken off"},
    {"AM-02", kAttentionMerge, kMedium, "a part with lse -inf is multiplied by its weight 0"},
    {"AM-03", kAttentionMerge, kMedium, "a row without parts: exp(-inf - -inf)"},
    {"AM-04", kAttentionMerge, kEasy, "lse of base 2"},
    {"AM-05", kAttentionMerge, kMedium, "pairs of parts: the last of an odd number is left out"},
    {"AM-06", kAttentionMerge, kHard, "weights of head 0 for all heads"},
    {"AM-07", kAttentionMerge, kHard, "strides of lses not read"},
    {"AM-08", kAttentionMerge, kMedium, "divided by the number of parts, not by their weights"},
    {"AM-09", kAttentionMerge, kHard, "sums kept in the type of the parts"},
    {"AM-10", kAttentionMerge, kFiendish, "maximum of the first 32 parts only"},
    {"AM-11", kAttentionMerge, kMedium, "lse is the maximum, the sum of the weights is left out"},
    {"AM-12", kAttentionMerge, kHard, "a part 88 below the maximum is skipped, whatever it holds"},
    {"AM-13", kAttentionMerge, kMedium, "lse written without looking whether it is there"},
    {"AM-14", kAttentionMerge, kMedium, "no parts: the outputs stay as they are"},
    {"AM-VAL-01", kAttentionMerge, kMedium, "a lses of any type is taken as fp32"},
    {"AM-VAL-02", kAttentionMerge, kHard, "extents of lse not compared"},
    {"AM-VAL-03", kAttentionMerge, kMedium, "no parts are rejected"},
};

}  // namespace attncheck::mutants
