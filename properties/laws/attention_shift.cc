// Laws of attention whose keys or values are shifted or split.
#include <algorithm>
#include <cmath>

#include "properties/laws/attention_gradient_numbers.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/attention_sight.h"

namespace attncheck::properties {
namespace {

/// A vector for every head, added to each of its rows [rows,heads,width]; false when a sum cannot be
/// stored exactly.
bool add_to_heads(ref::Dtype dtype, Bits& bits, const std::vector<double>& vectors) {
    return change_exactly(dtype, bits, [&](double value, std::size_t k) {
        return value + vectors[k % vectors.size()];
    });
}

/// Vectors of key/value heads, as the query heads that read these heads have them.
std::vector<double> of_query_heads(const AttentionProblem& problem,
                                   const std::vector<double>& vectors) {
    std::vector<std::int64_t> source;
    for (std::int64_t n = 0; n < problem.shape.query_heads; ++n)
        source.push_back(n / problem.shape.group());
    return gather_heads(vectors, problem.shape.kv_heads, source,
                        std::ssize(vectors) / problem.shape.kv_heads);
}

/// scale <q, c> of every row [T1,N1]: how far its logits move when `vectors` are added to the keys.
std::vector<double> moves_of_logits(const AttentionProblem& problem,
                                    const std::vector<double>& vectors) {
    const std::vector<double> query = decode_all(problem.dtype, problem.query),
                              of_heads = of_query_heads(problem, vectors);
    const std::int64_t width = problem.shape.head_dim;
    std::vector<double> moves;
    for (std::size_t k = 0; k < query.size(); k += static_cast<std::size_t>(width))
        moves.push_back(problem.scale * ref::inner_product(query.data() + k,
                                                           of_heads.data() + k % of_heads.size(),
                                                           width));
    return moves;
}

}  // namespace

/// Additive in V, with any drop mask.
/// Why     O = sum_j P_ij g_ij v_j, where neither P nor the drop factor g depends on V.
/// Domain  values rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs added; statistics and lists keep their bits.
/// Kills   FA-13 15 19 35 38 44, NSF-02 04 08 19 x16 x42, NCA-12 x11 x17 x23 x26 x27.
Verdict value_linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem whole = of.problem(spec);
    return verdict_on_split(of, whole, &AttentionProblem::value, spec.seed, context,
                            "values split in two",
                            [&](const std::string& name) { return name == whole.output_name; });
}

/// A constant added to all values is added to the output. Added to the given output as well, it
/// leaves dQ, dK and dV.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1; not with dropout or a sink.
///         dP_ij = <dO_i, v_j> and delta_i = <dO_i, O_i> grow by the same <dO_i, c>.
/// Domain  values and given output rounded to multiples of 1/8, c a whole number per key/value head
///         and channel: both sums are stored exactly.
/// Bound   the bounds of both runs added; statistics, lists and dV do not depend on V and keep their
///         bits.
/// Kills   FA-15 18 19 33 38 52, FAG-08, NSF-20 x02 x10 x13 x40 x41 x63,
///         NCA-x14 x18 x20 x27 x31 x33.
/// Shrinks to one query, one key or block of keys, one head, one non-zero logit.
Verdict value_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    const bool gradient = problem.gradient;
    if (!problem.sink.empty() || (gradient && problem.keep_prob != 1)) return inapplicable();
    quantise(problem.dtype, problem.value);
    if (gradient) quantise(problem.result, problem.output);
    Random random(mix(spec.seed));
    const std::vector<double> constants = whole_numbers(
        static_cast<std::size_t>(problem.shape.kv_heads * problem.shape.value_dim), 3, random);
    const std::vector<double> of_rows = of_query_heads(problem, constants);
    AttentionProblem shifted = problem;
    if (!add_to_heads(problem.dtype, shifted.value, constants) ||
        (gradient && !add_to_heads(problem.result, shifted.output, of_rows)))
        return inapplicable();
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const std::string relation =
        gradient ? "a constant added to all values and to the output" : "a constant added to all values";
    const auto depends_on_values = [&](const std::string& name) {
        return gradient ? !problem.output_named(name).is_value_grad() : name == problem.output_name;
    };
    Verdict all = verdict_on_equal_bits(
        left, right, context, relation,
        [&](const std::string& name, std::size_t) { return !depends_on_values(name); });
    const std::vector<char> with_keys = rows_that_see_keys(problem);
    const auto width = static_cast<std::size_t>(problem.shape.value_dim);
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_shifted = expected_of(shifted, context.rounding);
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (!depends_on_values(name) || output.is_sum) continue;
        std::vector<double> moved = left.values(name);
        for (std::size_t k = 0; k < moved.size() && !gradient; ++k)
            if (with_keys[k / width]) moved[k] += of_rows[k % of_rows.size()];
        join(all, verdict_within(problem, name, moved, right.values(name),
                                 sum_of(allowance(tensor_of(expected, name)),
                                        allowance(tensor_of(of_shifted, name))),
                                 relation));
    }
    return all;
}

namespace {

/// Moves the given row_max or LSE of every row as its logits move. Returns the relative error of P
/// that storing them, and the larger logits, cause.
double shift_statistics(const std::vector<double>& moves, const ref::RoundingClass& rounding,
                        AttentionProblem& shifted) {
    constexpr double kFp32 = 0x1p-24;
    const double unit = std::max(kFp32, ref::accumulator_roundoff({shifted.dtype, rounding}));
    double error = 0;
    for (std::size_t row = 0; row < shifted.row_max.size(); ++row) {
        if (!sees_keys(static_cast<double>(shifted.row_sum[row]))) continue;
        const double moved = static_cast<double>(shifted.row_max[row]) + moves[row];
        shifted.row_max[row] = static_cast<float>(moved);
        error = std::max(error, kFp32 * std::fabs(moved) + 9 * unit * std::fabs(moves[row]));
    }
    return error;
}

/// scale c sum_j dS_ij: what dQ_i gains. The sum is 0 for the exact output of a row.
std::vector<double> gained_by_queries(const AttentionProblem& problem,
                                      const std::vector<double>& vectors) {
    const GradientNumbers in(problem);
    const std::vector<double> of_heads = of_query_heads(problem, vectors);
    const auto width = static_cast<std::size_t>(problem.shape.head_dim),
               value_width = static_cast<std::size_t>(problem.shape.value_dim);
    std::vector<double> gained(in.query.size());
    for (std::size_t k = 0; k < gained.size(); ++k) {
        const std::size_t row = k / width;
        const double sum =
            in.factor[row] * (dot_of(in.output_grad, in.exact_output, row, value_width) -
                              dot_of(in.output_grad, in.output, row, value_width));
        gained[k] = in.scale * sum * of_heads[k % of_heads.size()];
    }
    return gained;
}

}  // namespace

/// A vector c added to all keys moves the logits of a row by scale <q, c> and nothing else. With the
/// same added to the given row_max or LSE, it leaves dK, dV and dbias, and gives dQ_i another
/// scale c sum_j dS_ij.
/// Why     softmax does not change when all its arguments grow by the same number; bias, mask,
///         dropout and rope do not change that. A softcap and a sink do. P stays, and so does dS;
///         sum_j dS_ij = f_i <dO_i, O*_i - O_i>, as in key_sum.
/// Domain  keys with their ropes rounded to multiples of 1/8, c whole numbers per key/value head:
///         K + c is stored exactly. A gradient gets statistics and output of the reference for the
///         rounded keys.
/// Bound   the bounds of both runs added, the second with the rounding of the moved statistics;
///         softmax_max or the LSE moves by scale <q, c>. Lists the same or right.
/// Kills   FA-20 32 63 65 66, NSF-14 x09 x12 x13 x14 x55 x56, NCA-x15 x16 x20 x25 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero query element.
Verdict key_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    const bool gradient = problem.gradient;
    if (!problem.sink.empty() || problem.softcap > 0) return inapplicable();
    if (gradient && (context.rounding.own_forward || problem.statistics == Statistics::none))
        return inapplicable();
    quantise(problem.dtype, problem.key);
    if (gradient) give_reference_forward(problem);
    Random random(mix(spec.seed));
    const std::vector<double> vectors = whole_numbers(
        static_cast<std::size_t>(problem.shape.kv_heads * problem.shape.head_dim), 2, random);
    AttentionProblem shifted = problem;
    if (!add_to_heads(problem.dtype, shifted.key, vectors)) return inapplicable();
    const std::vector<double> moves = moves_of_logits(problem, vectors);
    const double prob_error = gradient ? shift_statistics(moves, context.rounding, shifted) : 0;
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const auto expected_of_shifted = [&] {
        if (!gradient) return expected_of(shifted, context.rounding);
        const AttentionNumbers numbers(shifted);
        ref::AttentionGradInputs inputs = numbers.gradient_inputs();
        inputs.prob_error = prob_error;
        return expected_of(shifted, inputs, context.rounding);
    };
    constexpr const char* kRelation = "a vector added to all keys";
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_shifted = expected_of_shifted();
    const std::vector<char> with_keys = rows_that_see_keys(problem);
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (output.is_list()) {
            join(all, verdict_on_lists(of, {problem, left.bits(name)}, {shifted, right.bits(name)},
                                       context, kRelation));
            continue;
        }
        std::vector<double> moved = left.values(name);
        if (name == "dq") moved = sum_of(std::move(moved), gained_by_queries(problem, vectors));
        const bool moves_with_logits = output.is_row_max() || output.is_lse();
        for (std::size_t k = 0; k < moved.size() && moves_with_logits; ++k)
            if (const std::size_t row = k / static_cast<std::size_t>(output.width); with_keys[row])
                moved[k] += moves[row];
        join(all, verdict_within(problem, name, moved, right.values(name),
                                 sum_of(allowance(tensor_of(expected, name)),
                                        allowance(tensor_of(of_shifted, name))),
                                 kRelation));
    }
    return all;
}

}  // namespace attncheck::properties
