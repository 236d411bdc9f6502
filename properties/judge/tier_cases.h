// The cases that the second and third tier can judge: attention on data on which their model holds, with
// enough rows, or with long sums.
#pragma once

#include <cstdint>

#include "properties/case/random.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

/// Where the tiers' model holds: zero-mean data, logits of a moderate spread, distinct heads.
/// Fields "logits", "stats" and "out" as the attention operators name them.
bool is_tier_data(const Spec& spec);

/// Makes a case of it, and lengthens its sequences to some hundred rows where that stays legal.
/// Key lengths become multiples of `unit`, `least` or more; `max_pairs` bounds query rows times
/// heads times keys.
void make_tier_case(Spec& spec, Random& random, std::int64_t unit, std::int64_t least,
                    std::int64_t max_pairs);

/// Percent of the cases of `deviation` that have long sums.
inline constexpr int kLongTierCases = 12;

/// How long the sums of a long case are.
struct LongRows {
    std::int64_t shortest = 512, longest = 16'384;
    std::int64_t unit = 1;            ///< key lengths are multiples of it
    std::int64_t least = 1;           ///< keys of a sequence
    std::int64_t work = 180'000'000;  ///< rows times keys times channels, about
    bool of_queries = false;          ///< many queries and few keys: the sums of dK and dV
};

/// Makes a tier case one sequence with few rows and many keys, or the other way round: for defects
/// that only long sums have. Some 130 sums let every filter fire; wide heads leave fewer of them.
void make_long_tier_case(Spec& spec, Random& random, const LongRows& rows);

}  // namespace attncheck::properties
