// Attention of full size against the reference of chosen rows and keys: the part that all attention
// operators share. Bounds are those of the whole reference (ref/attention/chosen_attention.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/judge/attention_problem.h"
#include "properties/judge/context.h"
#include "properties/judge/sampling.h"
#include "ref/attention/chosen_attention.h"

namespace attncheck::properties {

/// A problem of full size, and how an operator runs it.
struct FullSizeAttention {
    /// Inputs alone: a gradient gets its statistics and output from the candidate's own forward.
    AttentionProblem problem;
    std::uint64_t seed = 0;  ///< of the chosen rows and keys
    double pairs = 0;        ///< visible pairs of a query row and a key, about
    /// At least the columns of these keys; empty: those of the problem.
    std::function<ref::ColumnLister(const std::vector<std::int64_t>& keys)> columns_of = {};
    /// The columns of these elements of the bias, numbered in this order; empty: dbias is not judged.
    std::function<ref::ColumnLister(const std::vector<std::int64_t>& elements)> bias_columns_of = {};
    bool has_tiers = false;  ///< the second and third tier judge the chosen rows, too
    std::int64_t exact_keys = 0;  ///< of every row, where sums are exact (exact_sums.h); else 0
    bool exact_scores = false;    ///< those of dQ and dK are exact as well, and the output is 0
    std::function<Call(const AttentionProblem&)> call;
    /// What the case does to the statistics and output of the forward; may be empty.
    std::function<void(AttentionProblem&)> alter_forward = {};
    /// What else the forward's rows have; may be empty.
    std::function<Verdict(const AttentionProblem& problem, const Call& call,
                          const CallResult& result, const RowSample& rows)>
        more = {};

    /// Products and additions of the forward; the gradient has 2.5 times as many.
    double flops() const {
        return 2 * pairs * static_cast<double>(problem.shape.head_dim + problem.shape.value_dim);
    }
};

/// Runs the forward and judges softmax_max, softmax_sum and attention_out; for a gradient then runs
/// it on what the forward gave and judges dQ, dK, dV, dbias and dsink. A verdict that holds says in its message
/// which rows and keys were compared.
Verdict check_sampled(FullSizeAttention of, PropertyContext& context);

/// The time limit and once more for every 10 GFLOP and every 10 million elements of a call, and
/// eight times its tensors of memory beyond the limit.
RunOptions limits_for(const Call& call, double flops);

/// Gives the tensors of a call the layouts of the case, by name; a tensor that the case knows as an
/// input stays dense where it is an output.
void lay_out(const Spec& spec, Call& call);

}  // namespace attncheck::properties
