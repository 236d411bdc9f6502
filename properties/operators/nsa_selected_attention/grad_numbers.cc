#include "properties/operators/nsa_selected_attention/grad_numbers.h"

#include <fmt/format.h>

namespace attncheck::properties {
namespace {

ExpectedOutputs named(ref::ExpectedAttentionGrad expected) {
    ExpectedOutputs out;
    out.emplace_back("dq", std::move(expected.query_grad));
    out.emplace_back("dk", std::move(expected.key_grad));
    out.emplace_back("dv", std::move(expected.value_grad));
    return out;
}

}  // namespace

ExpectedOutputs expected_with_errors(const SelectedGradientNumbers& in,
                                     const ref::RoundingClass& rounding,
                                     std::span<const double> output_error, double prob_error) {
    return named(ref::expected_attention_grad(
        in.parts.shape.dense(), in.parts.columns(),
        {in.forward(), in.output_grad, in.output, in.row_max, in.row_sum, output_error, prob_error},
        in.parts.dtype, rounding));
}

std::vector<std::int64_t> sequence_of_keys(const ref::SelectedAttentionShape& s) {
    std::vector<std::int64_t> sequences;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        sequences.insert(sequences.end(), static_cast<std::size_t>(s.kv_lengths[b]),
                         static_cast<std::int64_t>(b));
    sequences.resize(static_cast<std::size_t>(s.total_keys), -1);
    return sequences;
}

std::size_t slots(const SelectedParts& parts) {
    return parts.shape.query_lengths.size() * static_cast<std::size_t>(parts.shape.kv_heads);
}

Identity identity_per_slot(const SelectedParts& parts, std::size_t width) {
    Identity identity(slots(parts) * width);
    const auto heads = static_cast<std::size_t>(parts.shape.kv_heads);
    for (std::size_t k = 0; k < identity.place.size(); ++k) {
        const std::size_t slot = k / width;
        identity.place[k] =
            fmt::format("sequence {}, key/value head {}", slot / heads, slot % heads);
        if (width > 1) identity.place[k] += fmt::format(", channel {}", k % width);
    }
    return identity;
}

}  // namespace attncheck::properties
