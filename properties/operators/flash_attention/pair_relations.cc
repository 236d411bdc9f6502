// Relations of flash attention whose problems differ in what may not matter: biases that are
// hidden, masks that are not read, values that are dropped; and those whose biases or drop masks
// change. Hidden keys are attention_hidden.cc's concern.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/case/values.h"
#include "properties/laws/attention_sight.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The bias of a hidden pair matters to nothing.
/// Why     as hidden: a hidden key is skipped, its bias with it.
/// Domain  cases with a mask and an external bias, written element by element; any data.
/// Demand  the same bits with NaN in its place.
/// Kills   mutants FA-15, FAG-03.
Verdict hidden_bias(const Spec& spec, PropertyContext& context) {
    const std::optional<FlashParts> parts = with_plain_bias(flash_parts(spec));
    if (!parts || !is_legal(*parts)) return inapplicable();
    FlashParts poisoned = *parts;
    if (!is_poison_judged(flash_problem(*parts), context)) return inapplicable();
    const std::uint32_t poison = poison_of(parts->dtype, context);
    const ref::FlashAttentionShape& s = parts->shape;
    const ref::SequenceStarts starts(s);
    std::size_t at = 0;
    for_each_pair(s, [&](std::size_t b, Int n, Int i, Int j) {
        if (!ref::is_visible(s, starts, b, n, i, j)) poisoned.pse[at] = poison;
        ++at;
    });
    return verdict_on_identical_problems(*parts, poisoned, context,
                                         "with " + poison_name(parts->dtype, context) + " in the bias of hidden pairs");
}

/// The contents of a compressed mask say nothing.
/// Why     contract decision 8: in modes 2, 3, 4, 6, 7 and 8 the predicate decides.
/// Domain  these modes, any data.
/// Demand  the same bits with all elements 0, or all 1.
Verdict mask_contents(const Spec& spec, PropertyContext& context) {
    const auto filled = [](std::size_t size, std::uint8_t byte) {
        return std::make_shared<const std::vector<std::uint8_t>>(size, byte);
    };
    const AttentionOperator& of = flash_attention_operator();
    const AttentionProblem problem = of.problem(spec);
    const bool one = Random(mix(spec.seed)).chance(50);
    const AttentionRun plain(of, problem, context), changed(of, problem, context, [&](Call& call) {
        const int mask = tensor_with(Role::mask, *call.description);
        auto& bytes = call.tensors[static_cast<std::size_t>(mask)].shared_bytes;
        bytes = filled(bytes->size(), one ? 1 : 0);
    });
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    return verdict_on_equal_bits(plain, changed, context, fmt::format("with a compressed mask of {}", one ? "ones" : "zeros"));
}

bool has_compressed_mask(const Spec& spec) {
    const Int mode = spec.numbers[kFaSparse];
    return spec.numbers[kFaMask] != 0 && mode >= 2 && mode != 5;
}

void with_compressed_mask(Spec& spec, Random& random) {
    if (has_compressed_mask(spec)) return;
    with_some_mask(spec, random);
    spec.numbers[kFaSparse] = random.between(2, 4);
    spec.numbers[kFaMaskForm] = spec.numbers[kFaPrefix] = 0;
}

/// The value of a dropped key matters only where it is kept.
/// Why     contract decision 8, NaN: a dropped key's V and dP are hidden, its Q and K are not;
/// statistics and dv do not depend on V.
/// Domain  drop masks, any data; the values of a few keys become NaN.
/// Demand  the same bits: statistics and dv everywhere, output and dq of rows that keep none of
/// these keys, dk of all other keys; under forward=own of those that no such row sees, for its delta is NaN.
/// Kills   mutants FA-19, FA-58, FA-59, FAG-42.
Verdict dropped_values(const Spec& spec, PropertyContext& context) {
    const AttentionOperator& of = flash_attention_operator();
    const AttentionProblem problem = of.problem(spec);
    std::vector<char> keys(static_cast<std::size_t>(problem.key_rows()));
    Random random(mix(spec.seed));
    const int percent = spec.numbers[kFaDrop] == static_cast<Int>(FlashDrop::drop_all)
                            ? 50
                            : static_cast<int>(200 / (longest(problem.kv_lengths) + 3)) + 1;
    for (char& key : keys) key = random.chance(percent);
    if (std::count(keys.begin(), keys.end(), 1) == 0 || !is_poison_judged(problem, context))
        return inapplicable();
    AttentionProblem poisoned = problem;
    poison_keys(poisoned, keys, context, true);
    const std::vector<char> touched = rows_that_see(problem, keys, Drops::left_out);
    if (context.rounding.own_forward)
        for (std::size_t row = 0; row < touched.size(); ++row) {
            if (!touched[row]) continue;
            const std::vector<char> seen = keys_seen_by(problem, static_cast<Int>(row) / problem.shape.query_heads,
                                                        static_cast<Int>(row) % problem.shape.query_heads);
            for (std::size_t k = 0; k < keys.size(); ++k) keys[k] |= seen[k];
        }
    const AttentionRun plain(of, problem, context), changed(of, poisoned, context);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    return verdict_on_equal_bits(
        plain, changed, context, "with " + poison_name(problem.dtype, context) + " in values that are dropped",
        [&](const std::string& name, std::size_t k) {
            const AttentionOutput& output = problem.output_named(name);
            if (output.is_statistic() || output.is_value_grad()) return true;
            return !(output.of_keys ? keys : touched)[k / static_cast<std::size_t>(output.width)];
        });
}

/// A constant added to the bias of a row moves its maximum and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number; behind the
/// scale the maximum moves by c, before it by scale c.
/// Domain  external biases written element by element, as multiples of 1/8; c a whole number per
/// row and head.
/// Bound   the bounds of both runs.
/// Kills   mutants FA-13, FA-15, FA-32, FA-42, FA-44, FA-45.
Verdict bias_shift(const Spec& spec, PropertyContext& context) {
    std::optional<FlashParts> plain = with_plain_bias(flash_parts(spec));
    if (!plain || !is_legal(*plain)) return inapplicable();
    FlashParts& parts = *plain;
    quantise(parts.dtype, parts.pse);
    parts.take_bias();
    const ref::FlashAttentionShape& s = parts.shape;
    FlashParts shifted = parts;
    std::vector<double> constants(static_cast<std::size_t>(s.total_queries * s.query_heads));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-8, 8));
    const auto first_query = ref::first_rows(s.query_lengths);
    std::size_t at = 0;
    for_each_pair(s, [&](std::size_t b, Int n, Int i, Int) {
        const auto row = static_cast<std::size_t>((first_query[b] + i) * s.query_heads + n);
        shifted.pse[at] = ref::encode(parts.dtype, s.bias.values[at] + constants[row]);
        ++at;
    });
    shifted.take_bias();
    const AttentionOperator& of = flash_attention_operator();
    const AttentionProblem before = flash_problem(parts), after = flash_problem(shifted);
    const AttentionRun left(of, before, context), right(of, after, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs of_shifted = expected_of(after, context.rounding);
    const std::vector<char> with_keys = rows_that_see_keys(before);
    Verdict all;
    for (const auto& [name, expected] : expected_of(before, context.rounding)) {
        std::vector<double> moved = left.values(name);
        const AttentionOutput& output = before.output_named(name);
        const auto lanes = static_cast<std::size_t>(output.width);
        for (std::size_t k = 0; k < moved.size() && output.is_row_max(); ++k)
            if (with_keys[k / lanes])
                moved[k] += (s.bias.type == 1 ? s.scale : 1) * constants[k / lanes];
        join(all, verdict_within(
                      before, name, moved, right.values(name),
                      sum_of(allowance(expected), allowance(tensor_of(of_shifted, name))),
                      "a constant added to the bias of every row"));
    }
    return all;
}

void with_external_bias(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (has_external_bias(spec)) return;
    const Int mask = spec.numbers[kFaMask];
    with_mask_and_bias(spec, random);
    if (mask == 0) without_mask(spec);
}

/// The statistics are those before dropout.
/// Why     contract decision 3.
/// Domain  drop masks, any data.
/// Demand  the bits of the problem without dropout.
/// Kills   mutants FA-x77.
Verdict dropout_statistics(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts without = parts;
    without.shape.dropout.present = false;
    without.shape.dropout.keep_prob = without.keep_prob = 1;
    without.shape.dropout.bytes.clear();
    const AttentionOperator& of = flash_attention_operator();
    const AttentionProblem with_drops = flash_problem(parts), plain = flash_problem(without);
    if (!gives_statistics(plain)) return needs("softmax_max and softmax_sum");
    const AttentionRun left(of, with_drops, context), right(of, plain, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_on_equal_bits(left, right, context, "without dropout", [&](const std::string& name, std::size_t) {
            return plain.output_named(name).is_statistic();
        });
}

}  // namespace

void add_flash_pair_relations(std::vector<Property>& list) {
    list.push_back({"hidden_bias", "NaN in the bias of hidden pairs changes no bit", hidden_bias,
                    with_mask_and_bias, [](const Spec& spec) {
                        return spec.numbers[kFaMask] != 0 && has_external_bias(spec);
                    }});
    list.push_back({"mask_contents", "the contents of a compressed mask say nothing", mask_contents,
                    with_compressed_mask, has_compressed_mask});
    list.push_back({"dropped_values", "NaN in a value changes no bit of the rows that drop it",
                    dropped_values, with_drops, drops_some});
}

void add_flash_bias_relations(std::vector<Property>& list) {
    list.push_back({"bias_shift", "a constant in the bias of a row moves its maximum alone",
                    bias_shift, with_external_bias,
                    [](const Spec& spec) { return moderate(spec) && has_external_bias(spec); }});
    list.push_back({"dropout_statistics", "statistics are those before dropout", dropout_statistics,
                    with_drops, [](const Spec& spec) { return spec.numbers[kFaDrop] != 0; }});
}

}  // namespace attncheck::properties
