// The second and third tier for the attention operators: what rounding predicts for the outputs of a
// problem, and the data on which that holds.
#pragma once

#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "properties/judge/attention_problem.h"
#include "properties/judge/tiers.h"

namespace attncheck::properties {

/// Outputs of a candidate by the names of `tier_tensors`.
using TierOutputs = std::function<std::vector<double>(const std::string& name)>;

/// attention_out, softmax_max, softmax_sum, or dq, dk, dv, dbias, dsink, with what rounding
/// predicts; statistics one lane [T1,N1].
std::vector<TierTensor> tier_tensors(const AttentionProblem& problem,
                                     const ref::RoundingClass& rounding);

Verdict judge_attention(const AttentionProblem& problem, const ref::RoundingClass& declared,
                        const TierOutputs& outputs, TierScores* scores = nullptr);

/// Rows (t * N1 + n) and keys (j * N2 + n) of a problem whose whole reference would be quadratic.
struct ChosenRows {
    std::vector<std::int64_t> rows, keys;
    ref::ColumnLister key_columns;  ///< at least the columns of the keys
    std::vector<std::int64_t> bias = {};  ///< elements of a bias of one row
    ref::ColumnLister bias_columns = {};  ///< those of these elements, numbered in this order
};
/// The tensors above, row k of each being that of rows[k] or keys[k]; dsink as it is, dbias one row
/// of the chosen elements. Only outputs that have chosen rows are there.
std::vector<TierTensor> tier_tensors_of(const AttentionProblem& problem, const ChosenRows& chosen,
                                        const ref::RoundingClass& rounding);

/// The verdict on them; one that holds has as its message what it may miss.
Verdict judge_chosen_attention(const AttentionProblem& problem, const ChosenRows& chosen,
                               const ref::RoundingClass& declared, const TierOutputs& outputs);

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
