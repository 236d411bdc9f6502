// Laws of attention whose keys or values are shifted or split.
#include <algorithm>
#include <cmath>

#include "properties/laws/attention_gradient_numbers.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/attention_sight.h"

namespace attncheck::properties {
namespace {

/// Every output but that of the attention itself.
OutputFilter all_but_output(const AttentionProblem& problem) {
    return [&problem](const std::string& name, std::size_t) { return name != problem.output_name; };
}

std::vector<double> output_bound(const AttentionProblem& problem, const PropertyContext& context) {
    return allowance(tensor_of(expected_of(problem, context.rounding), problem.output_name));
}

/// A vector for every key/value head, added to each of its rows [T2,N2,width]; false when a sum
/// cannot be stored exactly.
bool add_to_heads(ref::Dtype dtype, Bits& bits, const std::vector<double>& vectors) {
    return change_exactly(dtype, bits, [&](double value, std::size_t k) {
        return value + vectors[k % vectors.size()];
    });
}

/// The vector of the key/value head that a row [T1,N1] reads.
const double* vector_of(const AttentionProblem& problem, const std::vector<double>& vectors,
                        std::size_t row, std::int64_t width) {
    const std::int64_t head = static_cast<std::int64_t>(row) % problem.shape.query_heads;
    return vectors.data() + head / problem.shape.group() * width;
}

}  // namespace

/// Additive in V, with any drop mask.
/// Why     O = sum_j P_ij g_ij v_j, where neither P nor the drop factor g depends on V.
/// Domain  values rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs added; statistics and lists keep their bits.
/// Kills   FA-13 15 19 35 38 44, NSF-02 04 08 19 x16 x42, NCA-12 x11 x17 x23 x26 x27.
Verdict value_linearity(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem whole = of.problem(spec);
    quantise(whole.dtype, whole.value);
    AttentionProblem first = whole, second = whole;
    Random random(mix(spec.seed));
    if (!split_exactly(whole.dtype, whole.value, random, first.value, second.value))
        return inapplicable();
    const AttentionRun a(of, first, context), b(of, second, context), sum(of, whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    Verdict all = verdict_on_equal_bits(sum, a, context, "other values", all_but_output(whole));
    join(all, verdict_on_sum(a, b, sum, context, "values split in two",
                             [&](const std::string& name) { return name == whole.output_name; }));
    return all;
}

/// A constant added to all values is added to the output.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1; not with dropout or a sink.
/// Domain  values rounded to multiples of 1/8, c a whole number per key/value head and channel:
///         V + c is stored exactly.
/// Bound   the bounds of both runs added; statistics and lists do not depend on V and keep their bits.
/// Kills   FA-15 18 19 33 38 52, NSF-20 x02 x10 x13 x40 x41 x63,
///         NCA-x14 x18 x20 x27 x31 x33.
/// Shrinks to one query, one key or block of keys, one head, one non-zero logit.
Verdict value_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!problem.sink.empty()) return inapplicable();
    quantise(problem.dtype, problem.value);
    const std::int64_t width = problem.shape.value_dim;
    Random random(mix(spec.seed));
    const std::vector<double> constants =
        whole_numbers(static_cast<std::size_t>(problem.shape.kv_heads * width), 3, random);
    AttentionProblem shifted = problem;
    if (!add_to_heads(problem.dtype, shifted.value, constants)) return inapplicable();
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "a constant added to all values";
    const std::vector<char> with_keys = rows_that_see_keys(problem);
    std::vector<double> moved = left.values(problem.output_name);
    for (std::size_t k = 0; k < moved.size(); ++k) {
        const std::size_t row = k / static_cast<std::size_t>(width);
        if (with_keys[row])
            moved[k] += vector_of(problem, constants, row,
                                  width)[k % static_cast<std::size_t>(width)];
    }
    Verdict all = verdict_on_equal_bits(left, right, context, kRelation, all_but_output(problem));
    join(all, verdict_within(problem, problem.output_name, moved,
                             right.values(problem.output_name),
                             sum_of(output_bound(problem, context), output_bound(shifted, context)),
                             kRelation));
    return all;
}

/// A vector c added to all keys moves the logits of a row by scale <q, c> and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number; bias, mask,
///         dropout and rope do not change that. A softcap and a sink do.
/// Domain  keys with their ropes rounded to multiples of 1/8, c whole numbers per key/value head:
///         K + c is stored exactly.
/// Bound   the bounds of both runs added; softmax_max or the LSE moves by scale <q, c>. Lists the same or
///         right.
/// Kills   FA-20 32 63 65 66, NSF-14 x09 x12 x13 x14 x55 x56, NCA-x15 x16 x20 x25 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero query element.
Verdict key_shift(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!problem.sink.empty() || problem.softcap > 0) return inapplicable();
    quantise(problem.dtype, problem.key);
    const std::int64_t width = problem.shape.head_dim;
    Random random(mix(spec.seed));
    const std::vector<double> vectors =
        whole_numbers(static_cast<std::size_t>(problem.shape.kv_heads * width), 2, random);
    AttentionProblem shifted = problem;
    if (!add_to_heads(problem.dtype, shifted.key, vectors)) return inapplicable();
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "a vector added to all keys";
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_shifted = expected_of(shifted, context.rounding);
    const std::vector<double> query = decode_all(problem.dtype, problem.query);
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
        const bool moves = output.is_row_max() || output.is_lse();
        for (std::size_t k = 0; k < moved.size() && moves; ++k) {
            const std::size_t row = k / static_cast<std::size_t>(output.width);
            if (with_keys[row])
                moved[k] += problem.scale *
                            ref::inner_product(
                                query.data() + row * static_cast<std::size_t>(width),
                                vector_of(problem, vectors, row, width), width);
        }
        join(all, verdict_within(problem, name, moved, right.values(name),
                                 sum_of(allowance(tensor_of(expected, name)),
                                        allowance(tensor_of(of_shifted, name))),
                                 kRelation));
    }
    return all;
}

namespace {

/// Moves the given row_max or LSE of every row by scale <q, c>. Returns the relative error of P that
/// storing them, and the larger logits, cause.
double shift_statistics(const std::vector<double>& vectors, const ref::RoundingClass& rounding,
                        AttentionProblem& shifted) {
    constexpr double kFp32 = 0x1p-24;
    const std::int64_t width = shifted.shape.head_dim;
    const std::vector<double> query = decode_all(shifted.dtype, shifted.query);
    const double unit = std::max(kFp32, ref::accumulator_roundoff(rounding, shifted.dtype));
    double error = 0;
    for (std::size_t row = 0; row < shifted.row_max.size(); ++row) {
        if (!sees_keys(static_cast<double>(shifted.row_sum[row]))) continue;
        const double by = shifted.scale *
                          ref::inner_product(query.data() + row * static_cast<std::size_t>(width),
                                             vector_of(shifted, vectors, row, width), width),
                     moved = static_cast<double>(shifted.row_max[row]) + by;
        shifted.row_max[row] = static_cast<float>(moved);
        error = std::max(error, kFp32 * std::fabs(moved) + 9 * unit * std::fabs(by));
    }
    return error;
}

/// scale c sum_j dS_ij: what dQ_i gains. The sum is 0 for the exact output of a row.
std::vector<double> gained_by_queries(const AttentionProblem& problem,
                                      const std::vector<double>& vectors) {
    const GradientNumbers in(problem);
    const auto width = static_cast<std::size_t>(problem.shape.head_dim),
               value_width = static_cast<std::size_t>(problem.shape.value_dim);
    std::vector<double> gained(in.query.size());
    for (std::size_t row = 0; row < in.factor.size(); ++row) {
        const double sum =
            in.factor[row] * (dot_of(in.output_grad, in.exact_output, row, value_width) -
                              dot_of(in.output_grad, in.output, row, value_width));
        const double* const vector =
            vector_of(problem, vectors, row, problem.shape.head_dim);
        for (std::size_t d = 0; d < width; ++d)
            gained[row * width + d] = in.scale * sum * vector[d];
    }
    return gained;
}

}  // namespace

/// A vector c added to all keys, and scale <q, c> to the given row_max or LSE, leaves dK, dV and
/// dbias, and gives dQ_i another scale c sum_j dS_ij.
/// Why     P stays, and so does dS. sum_j dS_ij = f_i <dO_i, O*_i - O_i>, as in key_sum.
/// Domain  as key_shift; statistics and output are those of the reference for the rounded keys.
/// Bound   the bounds of both runs added, the second with the rounding of the moved statistics.
/// Kills   no mutant that agreement leaves.
/// Shrinks to one query, one key or block of keys, one head, one non-zero query and dO element.
Verdict key_shift_of_gradient(const AttentionOperator& of, const Spec& spec,
                              PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!problem.sink.empty() || problem.softcap > 0 || context.rounding.own_forward ||
        problem.statistics == Statistics::none)
        return inapplicable();
    quantise(problem.dtype, problem.key);
    give_reference_forward(problem);
    Random random(mix(spec.seed));
    const std::vector<double> vectors = whole_numbers(
        static_cast<std::size_t>(problem.shape.kv_heads * problem.shape.head_dim), 2, random);
    AttentionProblem shifted = problem;
    if (!add_to_heads(problem.dtype, shifted.key, vectors)) return inapplicable();
    const double prob_error = shift_statistics(vectors, context.rounding, shifted);
    const AttentionRun left(of, problem, context), right(of, shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const AttentionNumbers numbers(shifted);
    ref::AttentionGradInputs inputs = numbers.gradient_inputs();
    inputs.prob_error = prob_error;
    const ExpectedOutputs expected = expected_of(problem, context.rounding),
                          of_shifted = expected_of(shifted, inputs, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        std::vector<double> moved = left.values(output.name);
        if (output.name == "dq") moved = sum_of(moved, gained_by_queries(problem, vectors));
        join(all, verdict_within(problem, output.name, moved, right.values(output.name),
                                 sum_of(allowance(tensor_of(expected, output.name)),
                                        allowance(tensor_of(of_shifted, output.name))),
                                 "a vector added to all keys"));
    }
    return all;
}

}  // namespace attncheck::properties
