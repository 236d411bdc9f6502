// Relations between problems of the forward of flash attention whose biases or drop masks change.
#include "properties/laws/attention_sight.h"
#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr std::size_t kLanes = 8;  ///< copies of every statistic

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
    parts.shape.bias.values = decode_all(parts.dtype, parts.pse);
    const ref::FlashAttentionShape& s = parts.shape;
    FlashParts shifted = parts;
    std::vector<double> constants(static_cast<std::size_t>(s.total_queries * s.query_heads));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-8, 8));
    const auto first_query = ref::first_rows(s.query_lengths);
    std::size_t at = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int n = 0; n < s.query_heads; ++n)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j, ++at)
                    shifted.pse[at] = ref::encode(
                        parts.dtype,
                        s.bias.values[at] + constants[static_cast<std::size_t>(
                                                (first_query[b] + i) * s.query_heads + n)]);
    shifted.shape.bias.values = decode_all(parts.dtype, shifted.pse);
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          shifted_expected = packed_expected_of(shifted, context.rounding);
    const std::vector<char> with_keys = rows_that_see_keys(flash_problem(parts));
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        std::vector<double> moved = left.values(name);
        for (std::size_t k = 0; k < moved.size() && name == "softmax_max"; ++k)
            if (with_keys[k / kLanes])
                moved[k] += (s.bias.type == 1 ? s.scale : 1) * constants[k / kLanes];
        join(all, verdict_on_flash(parts, name, moved, right.values(name),
                                   sum_of(allowance(tensor_of(expected, name)),
                                          allowance(tensor_of(shifted_expected, name))),
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
    const FlashRun left(parts, context), right(without, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    return verdict_on_equal_bits(
        parts, left, right, "without dropout",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
}

}  // namespace

void add_flash_forward_relations(std::vector<Property>& list) {
    add_flash_shared_relations(list, false);
    list.push_back({"bias_shift", "a constant in the bias of a row moves its maximum alone",
                    bias_shift, with_external_bias,
                    [](const Spec& spec) { return moderate(spec) && has_external_bias(spec); }});
    list.push_back({"dropout_statistics", "statistics are those before dropout", dropout_statistics,
                    with_drops, [](const Spec& spec) { return spec.numbers[kFaDrop] != 0; }});
}

}  // namespace attncheck::properties
