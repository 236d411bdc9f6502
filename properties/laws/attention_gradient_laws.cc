#include "properties/laws/attention_gradient_laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "properties/laws/attention_gradient_numbers.h"
#include "properties/laws/attention_sight.h"

namespace attncheck::properties {
namespace {

/// The given output is that of the reference; its statistics may be shifted.
bool has_reference_output(const Spec& spec) { return spec.number("out") == 0 && moderate(spec); }

/// The gradients are additive in dO.
/// Why     delta uses the given output, so that every gradient is linear in dO alone.
/// Domain  output gradients rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs added.
/// Kills   FAG-08, NSG-17 x17 x18 x24 x29.
Verdict linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    return verdict_on_split(of, of.problem(spec), &AttentionProblem::output_grad, spec.seed, context,
                            "output gradient split in two", [](const std::string&) { return true; });
}

/// Twice dO gives twice every gradient.
/// Why     as linearity; and rounding does not depend on exponents in the normal range.
/// Domain  moderate data. Not where sums are kept in fp16.
/// Demand  to the bit, where results are normal numbers: dV always, dQ and dK unless dS is cast to
///         fp16 (delta and dK of a head are by a declared class), whose subnormal numbers are within reach; there the bounds of
///         both runs added. Where
///         products with P or dS may be subnormal, within two bounds: such a product decides a tie.
/// Kills   FAG-13, NSG-x29 x34 x36.
/// Shrinks to one query, one key or block of keys, one head, a few elements of each input.
Verdict output_grad_scale(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    AttentionProblem doubled = problem;
    if (!scale_exactly(problem.dtype, doubled.output_grad, 1)) return inapplicable();
    const AttentionRun left(of, problem, context), right(of, doubled, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const bool to_the_bit = !casts_score_grad_to_fp16(problem, context);
    const PropertyContext opened = open_where_tiny(problem, context);
    const ExpectedOutputs expected =
        to_the_bit ? ExpectedOutputs{} : expected_of(problem, context.rounding);
    constexpr const char* kRelation = "output gradient doubled";
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (to_the_bit || (output.is_value_grad() && !context.rounding.group_rounded)) {
            join(all, verdict_on_scaled(left, right, opened, name, 1, kRelation));
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

/// An output gradient that is zero but for one row reaches that row's dQ and the keys it sees, for
/// dV those that it keeps.
/// Why     every term of dQ_i, and every term that row i adds to dK and dV, has dO_i as a factor.
/// Domain  moderate data; dO is kept in one (query, head), any given output and statistics.
/// Demand  exact zeros elsewhere, but where P may overflow or 0 meets an infinity; the row's dQ keeps the bits that it has with the whole dO.
/// Kills   FAG-18, NSG-x05 x11 x15 x19 x20.
/// Shrinks to two queries, one key or block of keys, one non-zero dO, V and K element each.
Verdict one_row(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const ref::AttentionShape& s = problem.shape;
    if (s.query_rows == 0) return inapplicable();
    Random random(mix(spec.seed));
    const std::int64_t t = random.between(0, s.query_rows - 1),
                       head = random.between(0, s.query_heads - 1);
    const auto row = static_cast<std::size_t>(t * s.query_heads + head);
    const auto row_of = [&](const std::string& name, std::size_t k) {
        return k / static_cast<std::size_t>(problem.output_named(name).width);
    };
    AttentionProblem single = problem;
    for (std::size_t k = 0; k < single.output_grad.size(); ++k)
        if (k / static_cast<std::size_t>(s.value_dim) != row) single.output_grad[k] = 0;
    const AttentionRun whole(of, problem, context), alone(of, single, context);
    if (auto early = first_early_verdict({&whole, &alone})) return *early;
    const std::string relation =
        fmt::format("with the output gradient of row {}, head {} alone", t, head);
    Verdict verdict = verdict_on_equal_bits(whole, alone, context, relation,
                                            [&](const std::string& name, std::size_t k) {
                                                const auto& output = problem.output_named(name);
                                                return !output.of_keys && !output.is_sum &&
                                                       row_of(name, k) == row;
                                            });
    if (verdict.failed()) return verdict;
    const std::vector<char> seen = keys_seen_by(problem, t, head),
                            kept = keys_seen_by(problem, t, head, Drops::left_out);
    std::optional<ExpectedOutputs> expected;  // P that overflows has no product with 0, nor has a given O that is infinite
    const auto is_judged = [&](const std::string& name, std::size_t k) {
        if (!expected) expected = expected_of(single, context.rounding);
        const auto& right = tensor_of(*expected, name);
        return std::isfinite(right.bound[k]) && !std::isnan(right.value[k]);
    };
    for (const AttentionOutput& output : problem.outputs()) {
        if (output.is_sum) continue;
        const std::string& name = output.name;
        const std::vector<double> values = alone.values(name);
        for (std::size_t k = 0; k < values.size(); ++k) {
            const std::size_t at = row_of(name, k);
            const bool reached = !output.of_keys          ? at == row
                                 : output.is_value_grad() ? kept[at]
                                                          : seen[at];
            if (!reached && values[k] != 0 && is_judged(name, k))
                return Verdict::fail(name + " of an unreached row is not 0",
                                     fmt::format("{}: {}  expected 0  got {:.9g}", relation,
                                                 problem.place(name, k), values[k]));
        }
    }
    return {};
}

/// (row_max + c, row_sum exp(-c)) is the same P.
/// Why     only exp(s - row_max) / row_sum enters a gradient, however the two share it.
/// Domain  a c of -2 .. 2 per row, on top of what the case does.
/// Bound   twice the bound for statistics that are off by the rounding of both pairs.
/// Kills   FAG-03 08 19, NSG-14 x17 x22.
/// Shrinks to one query, one key or block of keys, one head, one non-zero K, V and dO element.
Verdict statistics_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    constexpr double kFp32 = 0x1p-24;
    const AttentionProblem problem = of.problem(spec);
    if (problem.statistics != Statistics::pair) return inapplicable();
    const AttentionNumbers in(problem);
    AttentionProblem shifted = problem;
    Random random(mix(spec.seed));
    const double unit =
        std::max(kFp32, ref::accumulator_roundoff({problem.dtype, context.rounding}));
    ref::AttentionGradInputs inputs = in.gradient_inputs();
    for (std::size_t row = 0; row < in.row_max.size(); ++row) {
        if (!sees_keys(in.row_sum[row])) continue;
        const auto moved =
            static_cast<float>(in.row_max[row] + static_cast<double>(random.between(-8, 8)) / 4);
        const double really = static_cast<double>(moved) - in.row_max[row];
        shifted.row_max[row] = moved;
        shifted.row_sum[row] = static_cast<float>(in.row_sum[row] * std::exp(-really));
        // The rounding of the new sum; s - row_max, row_max and log(row_sum) grow by |c| each.
        inputs.prob_error =
            std::max(inputs.prob_error, 2 * kFp32 + 9 * unit * std::fabs(really));
    }
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    Verdict all;
    for (const auto& [name, expected] : expected_of(problem, inputs, context.rounding))
        join(all, verdict_within(problem, name, left.values(name), right.values(name),
                                 times(allowance(expected), 2), "row_max + c and row_sum exp(-c)"));
    return all;
}

/// A row sum that is twice as large halves every gradient.
/// Why     P is what the statistics say, not what the logits would give: contract decision 3.
/// Domain  factors 1/2, 2 and 4 for all rows at once; an LSE grows by their logarithm.
/// Bound   the bounds of both runs, that of the first divided by the factor; with an LSE, which the
///         logarithm rounds, that of the second.
/// Kills   FAG-18 19, NSG-x18 x21 x22 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero Q, V and dO element.
Verdict statistics_used(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (problem.statistics == Statistics::none || context.rounding.own_forward)
        return inapplicable();
    AttentionProblem changed = problem;
    const double factor = Random(mix(spec.seed)).pick<double>({0.5, 2, 4});
    if (problem.statistics == Statistics::lse) {
        for (std::size_t row = 0; row < changed.row_max.size(); ++row)
            if (sees_keys(static_cast<double>(changed.row_sum[row])))
                changed.row_max[row] += static_cast<float>(std::log(factor));
        const AttentionRun run(of, changed, context);
        if (run.early_verdict) return *run.early_verdict;
        return verdict_on_expected(run, expected_of(changed, context.rounding),
                                   fmt::format("lse + ln {}", factor));
    }
    for (float& row_sum : changed.row_sum)
        if (sees_keys(static_cast<double>(row_sum))) row_sum *= static_cast<float>(factor);
    const AttentionRun left(of, problem, context), right(of, changed, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs expected = expected_of(problem, context.rounding);
    Verdict all;
    for (const auto& [name, changed_expected] : expected_of(changed, context.rounding))
        join(all, verdict_within(problem, name, times(left.values(name), 1 / factor),
                                 right.values(name),
                                 sum_of(times(allowance(tensor_of(expected, name)), 1 / factor),
                                        allowance(changed_expected)),
                                 fmt::format("row_sum times {}", factor)));
    return all;
}

/// delta comes from the given output: O + d moves dS_ij by -P_ij <dO_i, d_i>, and dV does not
/// depend on O.
/// Why     contract decision 3.
/// Domain  d of up to 1/2 in every element.
/// Bound   that of the expected values for the changed output; the bits of dV.
/// Kills   FAG-03 07 10 13 18 40, NSG-x17 x18 x19 x20 x26 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero K and dO element.
Verdict output_used(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    if (context.rounding.own_forward) return inapplicable();
    const AttentionProblem problem = of.problem(spec);
    AttentionProblem changed = problem;
    Random random(mix(spec.seed));
    for (std::uint32_t& element : changed.output)
        element = ref::encode(problem.result, ref::decode(problem.result, element) +
                                                  static_cast<double>(random.between(-8, 8)) / 16);
    const AttentionRun left(of, problem, context), right(of, changed, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    constexpr const char* kRelation = "another given output";
    Verdict all =
        verdict_on_equal_bits(left, right, context, kRelation, [&](const std::string& name, std::size_t) {
            return problem.output_named(name).is_value_grad();
        });
    join(all, verdict_on_expected(right, expected_of(changed, context.rounding), kRelation));
    return all;
}

}  // namespace

void add_attention_gradient_laws(std::vector<Property>& list, const AttentionOperator& of,
                                 bool has_pair) {
    const auto add = [&](const char* name, const char* summary, AttentionLaw law) {
        list.push_back(attention_property(of, name, summary, law));
    };
    add("linearity", "additive in dO", linearity);
    list.back().adapt = [&of](Spec& spec, Random& random) { of.with_less_data(spec, random); };
    add("output_grad_scale", "twice dO gives twice the gradients", output_grad_scale);
    add("one_row", "dO in one row reaches that row and the keys it sees", one_row);
    add("value_sum", "sum_j dV_j = sum_ij P_ij g_ij dO_i", value_sum);
    add("key_sum", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i", key_sum);
    add("euler", "<dQ, Q> = <dK, K>, <dV, V> = sum f <dO, O*>", euler);
    if (has_pair)
        add("statistics_shift", "(row_max + c, row_sum exp(-c)) is the same P", statistics_shift);
    add("statistics_used", "P follows the given row_sum", statistics_used);
    add("output_used", "delta follows the given output, dV does not depend on it", output_used);
    add("adjoint", "<dQ, r>, <dK, r>, <dV, r>, <dbias, r>, dsink are derivatives of the exact forward", adjoint);
    list.back().adapt = [&of](Spec& spec, Random& random) {
        with_moderate_data(spec, random);
        spec.set("out", 0);
        of.with_combination(spec, random);
    };
    list.back().domain = has_reference_output;
    add("forward_backward",
        "the candidate's own output and statistics give the gradient of attention",
        forward_backward);
}

}  // namespace attncheck::properties
