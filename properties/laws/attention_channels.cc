#include "properties/laws/attention_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Channel d of every row becomes channel source[d].
template <class T>
std::vector<T> with_channels(const std::vector<T>& rows, const std::vector<Int>& source) {
    return gather_heads(rows, std::ssize(source), source, 1);
}

/// The permutation of an output's channels; none: its rows have no channels of the inputs.
const std::vector<Int>* source_of(const AttentionProblem& problem, const AttentionOutput& output,
                                  const std::vector<Int>& of_logits,
                                  const std::vector<Int>& of_values) {
    if (output.is_logit_grad()) return &of_logits;
    return output.is_value_grad() || output.name == problem.output_name ? &of_values : nullptr;
}

}  // namespace

/// Channels of query and key rearranged alike leave the logits; those of value, output and output
/// gradient carry their own sums.
/// Why     <q, k> and <dO, O> are sums over channels, and no channel of V meets another one
///         (nsa.md 5.2, flash_attention.md 2.2).
/// Domain  moderate data; a rope is part of the row.
/// Bound   twice that of one run: the same products in another order. Lists the same or right.
/// Kills   channels that are taken in a wrong order for one operand. No mutant that it kills alone:
///         agreement sees a wrong channel as well, but only where the reference is right.
/// Shrinks to one query, one key, two channels.
Verdict channel_permutation(const AttentionOperator& of, const Spec& spec,
                            PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    if (problem.shape.head_dim < 2 && problem.shape.value_dim < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> of_logits = permutation(problem.shape.head_dim, random),
                           of_values = permutation(problem.shape.value_dim, random);
    AttentionProblem moved = problem;
    for (Bits* rows : {&moved.query, &moved.key}) *rows = with_channels(*rows, of_logits);
    for (Bits* rows : {&moved.value, &moved.output, &moved.output_grad})
        *rows = with_channels(*rows, of_values);
    const AttentionRun left(of, problem, context), right(of, moved, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    constexpr const char* kRelation = "channels permuted";
    const ExpectedOutputs expected = expected_of(problem, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const std::string& name = output.name;
        if (output.is_list()) {
            join(all, verdict_on_lists(of, {problem, left.bits(name)}, {moved, right.bits(name)},
                                       context, kRelation));
            continue;
        }
        const std::vector<Int>* const source = source_of(problem, output, of_logits, of_values);
        const auto follow = [&](const std::vector<double>& rows) {
            return source ? with_channels(rows, *source) : rows;
        };
        join(all, verdict_within(moved, name, follow(left.values(name)), right.values(name),
                                 times(follow(allowance(tensor_of(expected, name))), 2),
                                 kRelation));
    }
    return all;
}

/// (2^a Q, 2^-a scale) has the logits of (Q, scale).
/// Why     scale <q, k> is the same number; away from overflow and underflow rounding does not look
///         at exponents. dQ goes with the scale.
/// Domain  moderate data, numbers below 2^-7 set to zero. Not where sums are kept in fp16.
/// Demand  the same bits; dQ scaled and dK the same, where they are normal numbers. Where dS or <q, k> is cast
///         to fp16, with its scale or without, within the bounds of both runs.
/// Kills   a scale of the caller that is taken for 1/sqrt(D) or applied twice: FA-32, NSG-02. No
///         mutant that it kills alone: agreement draws several scales.
/// Shrinks to one query, one key, one channel.
Verdict scale_folding(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec);
    if (!rounds_alike_at_every_scale(problem, context)) return inapplicable();
    // The root of a scale, which may be multiplied into both, has the bits of that of a quarter.
    const bool takes_roots = context.rounding.scaling != ref::Scaling::scores;
    drop_tiny(problem.dtype, problem.query);
    if (takes_roots) drop_tiny(problem.dtype, problem.key);
    AttentionProblem folded = problem;
    const int drawn = Random(mix(spec.seed)).pick<int>({-2, -1, 1, 2});
    const int exponent = takes_roots && drawn % 2 != 0 ? 2 * drawn : drawn;
    if (!scale_exactly(problem.dtype, folded.query, exponent)) return inapplicable();
    const auto scaled_back = [exponent](Call& call) {
        const auto scale = std::ranges::find_if(
            call.reals, [](const Real& real) { return real.name.starts_with("scale"); });
        if (scale == call.reals.end()) throw std::logic_error(call.op + " has no scale");
        scale->value = std::ldexp(scale->value, -exponent);
    };
    folded.scale = std::ldexp(folded.scale, -exponent);
    const AttentionRun left(of, problem, context), right(of, folded, context, scaled_back);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const std::string relation =
        fmt::format("query times 2^{}, scale times 2^{}", exponent, -exponent);
    const auto exponent_of = [=](const AttentionOutput& output) {
        return output.is_logit_grad() ? std::optional(output.of_keys ? 0 : -exponent) : std::nullopt;
    };
    const std::vector<AttentionOutput> outputs = problem.outputs();
    // <q, k> that is stored before it is scaled may overflow in one of the runs.
    if (problem.dtype == ref::Dtype::fp16 && (context.rounding.scores_rounded || context.rounding.steps_rounded))
        return verdict_within_powers(left, right, context, relation, exponent_of);
    const bool is_gradient = std::ranges::any_of(outputs, [](const auto& o) { return o.is_logit_grad(); });
    if (!is_gradient || !casts_score_grad_to_fp16(problem, context))
        return verdict_on_powers(left, right, context, relation, exponent_of);
    // dS may be cast with its scale.
    Verdict all = verdict_on_equal_bits(
        left, right, context, relation, [&](const std::string& name, std::size_t) {
            return !exponent_of(problem.output_named(name));
        });
    join(all, verdict_within_powers(left, right, context, relation, exponent_of));
    return all;
}

}  // namespace attncheck::properties
