#include "properties/laws/attention_laws.h"

#include "properties/case/attention_data.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_channels.h"
#include "properties/laws/attention_gradient_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/exact_lattice.h"

namespace attncheck::properties {
namespace {

/// Second and third tier.
/// Why     roundings of zero-mean data are independent errors of known size; a defect that the
/// rigorous bound has room for moves all elements the same way.
/// Domain  is_tier_data, some hundred rows; any size while shrinking: a smaller case has the same
/// thresholds and less power, so that shrinking ends where the defect no longer stands out.
/// Bound   tiers.h, kFalseAlarm.
/// Kills   gains of 0.05 % and more, P or dS coarser than declared, terms of a tile or a row.
Verdict deviation(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    return judge_attention(of.in_order(problem), context.rounding,
                           [&](const std::string& name) { return run.first_lanes(name); });
}

/// agreement on data whose probabilities are exact; `adapt` makes such data of whole numbers.
void add_exact_lattice(std::vector<Property>& list, const AttentionOperator& of,
                       void (*adapt)(Spec&, Random&)) {
    Property property =
        exact_lattice_property([&of](const Spec& spec, PropertyContext& context, ref::Grant grant) {
            return check_agreement(spec, context, attention_case(of, spec, grant));
        });
    property.adapt = [adapt](Spec& spec, Random& random) {
        spec.recipe = Recipe::ints;
        adapt(spec, random);
    };
    property.domain = [](const Spec& spec) {
        return is_zero_or_missing(spec, "stats") && is_zero_or_missing(spec, "out") &&
               (spec.recipe == Recipe::ints || spec.recipe == Recipe::zeros);
    };
    property.case_factor = 2;
    list.push_back(std::move(property));
}

/// The second and third tier (judge/attention_tiers.h); `adapt` makes a case that they can judge.
Property deviation_property(const AttentionOperator& of, void (*adapt)(Spec&, Random&)) {
    Property property = attention_property(
        of, "deviation", "errors on zero-mean data are as rounding predicts: no gain, no lost part",
        deviation);
    property.adapt = adapt;
    property.domain = is_tier_data;
    property.case_divisor = 4;
    return property;
}

}  // namespace

void make_dense_tier_case(Spec& spec, Random& random, bool gradient) {
    make_tier_case(spec, random, 1, 1,
                   2'000'000 / (spec.number("dim") + spec.number("value_dim") + 16));
    // Percent. A default run has 25 cases; those of the gradient cost four times as much. A dozen long sums cost
    // what a short case does: too few for a filter, enough for sums that are kept in half beyond some length.
    if (gradient && random.chance(25))
        return make_long_tier_case(
            spec, random, {.shortest = 2048, .work = 6'000'000, .of_queries = random.chance(50)});
    if (!random.chance(gradient ? 14 : 25)) return;
    make_long_tier_case(
        spec, random,
        {.work = gradient ? 80'000'000 : 180'000'000, .of_queries = gradient && random.chance(50)});
}

void add_attention_checks(std::vector<Property>& list, const AttentionOperator& of,
                          const AttentionChecks& checks) {
    CallProperties call = call_properties_of(of);
    call.adapt_agreement = checks.adapt_agreement;
    call.adapt_history = checks.adapt_history;
    call.earlier = earlier_attention(checks.earlier);
    add_call_properties(list, call);
    add_exact_lattice(list, of, checks.lattice);
    if (checks.effectless)
        list.push_back(unusual_arguments_property(call.problem, checks.effectless));
    Property deviation = deviation_property(of, checks.tier_case);
    deviation.domain = checks.is_tier_case;
    list.insert(list.begin() + 1, std::move(deviation));
}

void add_attention_laws(std::vector<Property>& list, const AttentionOperator& of, bool gradient,
                        const AttentionCases& cases) {
    const auto add = [&](const char* name, const char* summary, AttentionLaw law) -> Property& {
        list.push_back(attention_property(of, name, summary, law));
        return list.back();
    };
    const auto add_for = [&](AttentionCases::Adapt adapt, const char* name, const char* summary,
                             AttentionLaw law) { add(name, summary, law).adapt = adapt; };
    const auto add_for_less = [&](AttentionCases::Adapt adapt, const char* name,
                                  const char* summary, AttentionLaw law) {
        add(name, summary, law).adapt = [first = cases.less_data, adapt](Spec& spec,
                                                                         Random& random) {
            first(spec, random);
            adapt(spec, random);
        };
    };
    const auto add_on_any_data = [&](AttentionCases::Adapt adapt, AttentionCases::Test domain,
                                     const char* name, const char* summary, AttentionLaw law) {
        Property& property = add(name, summary, law);
        property.adapt = adapt;
        property.domain = domain;
    };
    add_on_any_data(cases.unseen_keys, nullptr, cases.hidden,
                    "NaN in keys that no row sees changes no bit", hidden);
    add_on_any_data(cases.masked, cases.is_masked, cases.causality,
                    "NaN behind the mask changes no bit of the rows it is hidden from", causality);
    add_on_any_data(nullptr, nullptr, "row_view",
                    "NaN in all that a row does not see changes no bit of it", row_view);
    add("packing", "sequences and batches give what each gives alone", packing).adapt =
        [less_data = cases.less_data, with_more = cases.several_sequences](Spec& spec,
                                                                           Random& random) {
            less_data(spec, random);
            if (spec.lists[0].size() == 1) with_more(spec, random);
        };
    add_for_less(cases.several_heads, "head_permutation",
                 "permuting key/value heads with their groups", head_permutation);
    add_for_less(cases.group, "group_permutation", "permuting the query heads of a group",
                 group_permutation);
    add_for_less(cases.group, "gqa_repeat", "a group is its key/value head repeated", gqa_repeat);
    add("power_of_two", "(2^a Q, 2^-a K) has the same logits, to the bit", power_of_two);
    add("value_scale", "twice V gives twice O, to the bit", value_scale);
    add("scale_folding", "(2^a Q, 2^-a scale) has the same logits, to the bit", scale_folding);
    add_for(cases.several_runs, "channel_permutation",
            "rearranged channels of Q and K, and of V, O and dO", channel_permutation);
    const auto undropped_only = [&] {
        if (cases.is_undropped)
            list.back().domain = [test = cases.is_undropped](const Spec& spec) {
                return moderate(spec) && test(spec);
            };
    };
    if (gradient) {
        add_attention_gradient_laws(list, of, cases.has_pair);
        add_for(cases.undropped, "value_shift", "V + c and O + c leave dQ, dK and dV", value_shift);
        undropped_only();
        add_for(cases.several_runs, "key_shift", "K + c and row_max + scale <q, c> leave dK and dV", key_shift);
        return;
    }
    if (cases.has_pair)
        add("statistics", "eight equal elements; row_max + log(row_sum) is the LSE", statistics);
    add_for(cases.several_runs, "value_linearity", "V + W gives O(V) + O(W), with any drop mask",
            value_linearity);
    add_for(cases.undropped, "value_shift", "V + c gives O + c", value_shift);
    undropped_only();
    add_for(cases.several_runs, "key_shift", "K + c moves row_max by scale <q, c> and nothing else",
            key_shift);
}

}  // namespace attncheck::properties
