// Laws of the attention forward whose keys or values are shifted or split.
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

/// Whole numbers of size at most `most`.
std::vector<double> whole_numbers(std::size_t count, std::int64_t most, Random& random) {
    std::vector<double> numbers(count);
    for (double& number : numbers) number = static_cast<double>(random.between(-most, most));
    return numbers;
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
    const std::vector<double> part = whole_numbers(whole.value.size(), 3, random);
    if (!change_exactly(whole.dtype, first.value, [&](double, std::size_t k) { return part[k]; }) ||
        !change_exactly(whole.dtype, second.value,
                        [&](double value, std::size_t k) { return value - part[k]; }))
        return inapplicable();
    const AttentionRun a(of, first, context), b(of, second, context), sum(of, whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    Verdict all = verdict_on_equal_bits(sum, a, context, "other values", all_but_output(whole));
    join(all, verdict_within(
                  whole, whole.output_name,
                  sum_of(a.values(whole.output_name), b.values(whole.output_name)),
                  sum.values(whole.output_name),
                  sum_of(sum_of(output_bound(first, context), output_bound(second, context)),
                         output_bound(whole, context)),
                  "values split in two"));
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

}  // namespace attncheck::properties
