// The second and third tier for the attention operators: a problem in dense parts, what rounding
// predicts for its outputs, and the data on which that holds.
#pragma once

#include "properties/judge/tiers.h"
#include "properties/laws/property.h"
#include "ref/operators/dense_attention.h"

namespace attncheck::properties {

/// A problem that owns its numbers. Outputs in packed order [rows, heads, width]; statistics one
/// lane [T1,N1]. A rope's gradient stands behind the head dim.
struct AttentionTierProblem {
    bool gradient = false;
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::AttentionShape shape;
    ref::ColumnLister columns;
    std::vector<double> query, key, value;
    double scale = 1, keep_prob = 1;
    std::vector<double> output_grad, output, row_max, row_sum;  ///< the gradient's own
    std::vector<std::int64_t> query_lengths, kv_lengths;

    ref::AttentionInputs<double> inputs() const { return {query, key, value, scale, keep_prob}; }
    ref::AttentionGradInputs gradient_inputs() const {
        return {inputs(), output_grad, output, row_max, row_sum};
    }
    /// attention_out, softmax_max, softmax_sum, or dq, dk, dv.
    std::vector<TierTensor> tensors(const ref::RoundingClass& rounding) const;
};

/// Outputs of a candidate by the names of `tensors`.
using TierOutputs = std::function<std::vector<double>(const std::string& name)>;

Verdict judge_attention(const AttentionTierProblem& problem, const ref::RoundingClass& declared,
                        const TierOutputs& outputs, TierScores* scores = nullptr);

/// Where the tiers' model holds: zero-mean data, logits of a moderate spread, distinct heads.
/// Fields "logits", "stats" and "out" as the attention operators name them.
bool is_tier_data(const Spec& spec);

/// Makes a case of it, and lengthens its sequences to some hundred rows where that stays legal.
/// Key lengths become multiples of `unit`, `least` or more; `max_pairs` bounds query rows times
/// heads times keys.
void make_tier_case(Spec& spec, Random& random, std::int64_t unit, std::int64_t least,
                    std::int64_t max_pairs);

/// The property "deviation": second and third tier.
/// Why     roundings of zero-mean data are independent errors of known size; a defect that the
/// rigorous bound has room for moves all elements the same way.
/// Domain  is_tier_data, some hundred rows; any size while shrinking: a smaller case has the same
/// thresholds and less power, so that the walk ends where the defect stops to stand out.
/// Bound   tiers.h, kFalseAlarm.
/// Kills   gains of 0.05 % and more, P or dS coarser than declared, terms of a tile or a row.
Property attention_tier_property(std::function<Verdict(const Spec&, PropertyContext&)> check,
                                 std::function<void(Spec&, Random&)> adapt);

}  // namespace attncheck::properties
