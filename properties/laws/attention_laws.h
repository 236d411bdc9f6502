// The laws of attention, each written once against AttentionOperator. A new operator calls
// add_attention_laws and has them all.
#pragma once

#include <string>
#include <vector>

#include "properties/case/attention_draws.h"
#include "properties/judge/attention_tiers.h"
#include "properties/judge/tier_cases.h"
#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"
#include "properties/laws/relation_checks.h"
#include "properties/laws/unusual_arguments.h"

namespace attncheck::properties {

/// How the generator of an operator is steered to the cases that a law wants: to shapes and
/// features, and to moderate data where the law needs that.
struct AttentionCases {
    using Adapt = void (*)(Spec&, Random&);
    using Test = bool (*)(const Spec&);

    Adapt unseen_keys;        ///< some key is seen by no row
    Adapt masked;
    Test is_masked;
    Adapt less_data = with_moderate_data;     ///< comes before the three below
    Adapt several_sequences;                  ///< of a case with but one
    Adapt several_heads = with_more_heads;    ///< key/value heads
    Adapt group = with_larger_group;          ///< query heads per key/value head
    Adapt several_runs = with_moderate_data;  ///< of laws that shift or split keys or values
    Adapt undropped = several_runs;
    Test is_undropped = nullptr;              ///< empty: all cases

    bool has_pair = true;  ///< of statistics

    const char* hidden = "hidden";  ///< names of properties
    const char* causality = "causality";
};

// Of both directions.
Verdict hidden(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict causality(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict row_view(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict packing(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict head_permutation(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict group_permutation(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict gqa_repeat(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict power_of_two(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict value_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict value_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict key_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

// Of the forward.
Verdict value_linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context);
Verdict statistics(const AttentionOperator& of, const Spec& spec, PropertyContext& context);

/// Every law above that holds for this direction, and those of attention_gradient_laws.h, as
/// properties. `of` outlives the list.
void add_attention_laws(std::vector<Property>& list, const AttentionOperator& of, bool gradient,
                        const AttentionCases& cases);

/// Every output of the problem with its heads rearranged, within twice the bound of the problem;
/// lists equal or right.
Verdict verdict_on_moved_heads(const AttentionOperator& of, const AttentionProblem& problem,
                               PropertyContext& context,
                               const std::vector<std::int64_t>& query_source,
                               const std::vector<std::int64_t>& kv_source,
                               const std::string& relation);

/// How cases are made for what an operator is checked against the reference with.
struct AttentionChecks {
    void (*adapt_agreement)(Spec&, Random&) = nullptr;
    void (*adapt_history)(Spec&, Random&) = nullptr;
    std::vector<EarlierChange> earlier = {};  ///< of the call before, beside those of any attention
    void (*lattice)(Spec&, Random&);  ///< exact data
    void (*tier_case)(Spec&, Random&);
    bool (*is_tier_case)(const Spec&) = is_tier_data;
    EffectlessEdits effectless = nullptr;  ///< none: no `unusual_arguments`
};
/// The properties of a call, `deviation` behind the first of them, `exact_lattice`, and `unusual_arguments`.
void add_attention_checks(std::vector<Property>& list, const AttentionOperator& of,
                          const AttentionChecks& checks);

/// A tier case of an operator without blocks: any lengths will do. Some have long rows.
void make_dense_tier_case(Spec& spec, Random& random, bool gradient);

/// A list that begins with them.
inline std::vector<Property> attention_checks(const AttentionOperator& of,
                                              const AttentionChecks& checks) {
    std::vector<Property> list;
    add_attention_checks(list, of, checks);
    return list;
}

}  // namespace attncheck::properties
