#include "properties/laws/attention_gradient_laws.h"

#include <cmath>
#include <limits>

#include "properties/laws/attention_run.h"

namespace attncheck::properties {

/// The gradients are additive in dO.
/// Why     delta uses the given output, so that every gradient is linear in dO alone.
/// Domain  output gradients rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs added.
/// Kills   FAG-08, NSG-17 x17 x18 x24 x29.
Verdict linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem whole = of.problem(spec);
    quantise(whole.dtype, whole.output_grad);
    AttentionProblem first = whole, second = whole;
    Random random(mix(spec.seed));
    std::vector<double> part(whole.output_grad.size());
    for (double& value : part) value = static_cast<double>(random.between(-3, 3));
    if (!change_exactly(whole.dtype, first.output_grad,
                        [&](double, std::size_t k) { return part[k]; }) ||
        !change_exactly(whole.dtype, second.output_grad,
                        [&](double value, std::size_t k) { return value - part[k]; }))
        return inapplicable();
    const AttentionRun a(of, first, context), b(of, second, context), sum(of, whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    const ExpectedOutputs a_expected = expected_of(first, context.rounding),
                          b_expected = expected_of(second, context.rounding),
                          sum_expected = expected_of(whole, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : whole.outputs()) {
        const std::string& name = output.name;
        join(all, verdict_within(whole, name, sum_of(a.values(name), b.values(name)),
                                 sum.values(name),
                                 sum_of(sum_of(allowance(tensor_of(a_expected, name)),
                                               allowance(tensor_of(b_expected, name))),
                                        allowance(tensor_of(sum_expected, name))),
                                 "output gradient split in two"));
    }
    return all;
}

/// Twice dO gives twice every gradient.
/// Why     as linearity; and rounding does not look at exponents in the normal range.
/// Domain  moderate data. Not where sums are kept in fp16.
/// Demand  to the bit, where results are normal numbers: dV always, dQ and dK unless dS is cast to
///         fp16, whose subnormal numbers are within reach; there the bounds of both runs added.
/// Kills   FAG-13, NSG-x29 x34 x36.
/// Shrinks to one query, one key or block of keys, one head, a few elements of each input.
Verdict output_grad_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    AttentionProblem doubled = problem;
    if (!scale_exactly(problem.dtype, doubled.output_grad, 1)) return inapplicable();
    const AttentionRun left(of, problem, context), right(of, doubled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const bool to_the_bit =
        problem.dtype != ref::Dtype::fp16 || !context.rounding.score_grad_rounded;
    const ExpectedOutputs expected =
        to_the_bit ? ExpectedOutputs{} : expected_of(problem, context.rounding);
    constexpr const char* kRelation = "output gradient doubled";
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (to_the_bit || name == "dv") {
            join(all, verdict_on_scaled(left, right, name, 1, kRelation));
            continue;
        }
        // Every term of the bound at most doubles with dO.
        const std::vector<double> twice = times(left.values(name), 2);
        std::vector<double> allowed = times(allowance(tensor_of(expected, name)), 4);
        for (std::size_t k = 0; k < twice.size(); ++k)
            if (std::fabs(twice[k]) > ref::max_finite(problem.result) / 2)
                allowed[k] = std::numeric_limits<double>::infinity();
        join(all, verdict_within(problem, name, twice, right.values(name), allowed, kRelation));
    }
    return all;
}

void add_attention_gradient_laws(std::vector<Property>& list, const AttentionOperator& of) {
    list.push_back(attention_property(of, "linearity", "additive in dO", linearity));
    list.back().adapt = [&of](Spec& spec, Random& random) { of.with_less_data(spec, random); };
    list.push_back(attention_property(of, "output_grad_scale", "twice dO gives twice the gradients",
                                      output_grad_scale));
}

}  // namespace attncheck::properties
