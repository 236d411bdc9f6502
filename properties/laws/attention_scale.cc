// Attention laws of scaled numbers: powers of two, to the bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"

namespace attncheck::properties {
namespace {

/// Under scale=half the scale, its root, or either times log2 e is multiplied into query or key and the product stored:
/// whether these products are normal numbers of the storage type.
bool are_stored_products_normal(const AttentionProblem& problem, const PropertyContext& context) {
    if (context.rounding.scaling != ref::Scaling::half || problem.dtype == ref::Dtype::fp32) return true;
    constexpr double kLog2E = 1.4427, kRounding = 1.01;
    const double scale = std::fabs(problem.scale);
    const double least = std::min(1.0, scale) / kRounding, most = std::max(1.0, kLog2E * scale) * kRounding;
    for (const Bits* tensor : {&problem.query, &problem.key})
        for (const std::uint32_t bits : *tensor) {
            const double value = std::fabs(ref::decode(problem.dtype, bits));
            if (value != 0 && scale != 0 && std::isfinite(value) &&
                (value * most > ref::max_finite(problem.dtype) || value * least < ref::min_normal(problem.dtype)))
                return false;
        }
    return true;
}

}  // namespace

/// (2^a Q, 2^-a K) has the logits of (Q, K).
/// Why     every product q k is the same number; away from overflow and underflow rounding does not
///         look at exponents. dq goes with K, dk with Q.
/// Domain  moderate data, numbers below 2^-7 set to zero; ropes follow. Not where sums are kept in
///         fp16, whose small sums are subnormal, nor where scale=half stores products that are no normal numbers.
/// Demand  the same bits; dq and dk scaled, where they are normal numbers.
/// Kills   in the gradient NSG-05 06 x03 x12 x13 x35; in the forward no mutant of the arithmetic,
///         only NSF-x58 x59 x60 NCA-ALL-11 (memory, reuse of a buffer), which others kill as well.
Verdict power_of_two(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    drop_tiny(problem.dtype, problem.query);
    drop_tiny(problem.dtype, problem.key);
    AttentionProblem scaled = problem;
    const int exponent = Random(mix(spec.seed)).pick<int>({-3, -1, 1, 3});
    if (!scale_exactly(problem.dtype, scaled.query, exponent) ||
        !scale_exactly(problem.dtype, scaled.key, -exponent) ||
        !are_stored_products_normal(problem, context) || !are_stored_products_normal(scaled, context))
        return inapplicable();
    const AttentionRun left(of, problem, context), right(of, scaled, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const std::string relation =
        fmt::format("query times 2^{}, key times 2^{}", exponent, -exponent);
    return verdict_on_powers(left, right, context, relation, [=](const AttentionOutput& output) {
        return output.is_logit_grad() ? std::optional(output.of_keys ? exponent : -exponent)
                                      : std::nullopt;
    });
}

/// Twice V gives twice O, with any drop mask. In the gradient (2 V, 2 O, dO / 2) has the dS of
/// (V, O, dO), and half its dV.
/// Why     O is linear in V, lists and statistics do not depend on V; dP = <dO, V> and
///         delta = <dO, O> stay the same numbers.
/// Domain  moderate data, output gradients below 2^-7 set to zero. Not where sums are kept in fp16.
/// Demand  the same bits: statistics, lists, dq and dk as they were, O doubled and dv halved where
///         they are normal numbers.
/// Kills   FA-18 33 66, FAG-03, NSF-x16 x17 x42 x46, NSG-x14 x16 x35 x36, NCA-x18 x20 x33.
Verdict value_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    drop_tiny(problem.dtype, problem.output_grad);
    AttentionProblem scaled = problem;
    if (!scale_exactly(problem.dtype, scaled.value, 1) ||
        !scale_exactly(problem.result, scaled.output, 1) ||
        !scale_exactly(problem.dtype, scaled.output_grad, -1))
        return inapplicable();
    const AttentionRun left(of, problem, context), right(of, scaled, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const std::string relation =
        problem.gradient ? "value and output doubled, output gradient halved" : "value doubled";
    return verdict_on_powers(left, right, context, relation, [&](const AttentionOutput& output) {
        return output.is_value_grad()                 ? std::optional(-1)
               : output.name == problem.output_name ? std::optional(1)
                                                      : std::nullopt;
    });
}

}  // namespace attncheck::properties
