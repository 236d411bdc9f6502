// The second and third tier for the attention operators: what rounding predicts for the outputs of a
// problem.
#pragma once

#include "properties/judge/attention_problem.h"
#include "properties/judge/tiers.h"

namespace attncheck::properties {

/// Outputs of a candidate by the names of `tier_tensors`.
using TierOutputs = std::function<std::vector<double>(const std::string& name)>;

/// attention_out, softmax_max, softmax_sum, or dq, dk, dv, dbias, dsink, with what rounding
/// predicts; statistics one lane [T1,N1].
std::vector<TierTensor> tier_tensors(const AttentionProblem& problem,
                                     const ref::RoundingClass& rounding);

/// The same tensors with their names, roles and values only, where the reference has them without
/// what rounding predicts, at a fraction of the cost; else as `tier_tensors`.
std::vector<TierTensor> value_tensors(const AttentionProblem& problem);

/// The LSE of a row that sees nothing is -infinity, which is the first tier's to judge: it is taken as what is expected.
void leave_out_empty_rows(TierTensor& tensor);

/// The problem with the wanted rows alone; the others are of no sequence.
AttentionProblem of_rows(const AttentionProblem& problem, const WantedRows& wanted);

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

}  // namespace attncheck::properties
