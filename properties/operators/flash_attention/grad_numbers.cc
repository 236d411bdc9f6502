#include "properties/operators/flash_attention/grad_numbers.h"

#include <fmt/format.h>

namespace attncheck::properties {

void FlashGradientNumbers::attend() {
    exact_output.assign(output.size(), 0);
    factor.assign(row_max.size(), 0);
    kept.assign(row_max.size(), 0);
    const ref::AttentionShape dense = parts.shape.dense();
    const ref::AttentionInputs<double> in = forward();
    ref::AttentionRow<double> row;
    for_each_row(
        parts, [&](std::int64_t t, std::int64_t n, const std::vector<ref::KeyColumn>& columns) {
            if (columns.empty()) return;
            ref::attend_row(dense, in, t, n, std::span<const ref::KeyColumn>(columns), row);
            const auto at = static_cast<std::size_t>(t * dense.query_heads + n);
            std::copy(row.output.begin(), row.output.end(),
                      exact_output.begin() + static_cast<std::int64_t>(at * value_dim()));
            factor[at] = std::exp(row.row_max - row_max[at]) * row.row_sum / row_sum[at];
            for (std::size_t j = 0; j < columns.size(); ++j)
                if (columns[j].kept) kept[at] += row.probs[j];
            kept[at] *= factor[at] / in.keep_prob;
        });
}

ExpectedOutputs expected_of(const FlashGradientNumbers& in, const ref::RoundingClass& rounding,
                            std::span<const double> output_error, double prob_error) {
    auto expected = ref::expected_attention_grad(
        in.parts.shape.dense(), ref::flash_columns(in.parts.shape),
        {in.forward(), in.output_grad, in.output, in.row_max, in.row_sum, output_error, prob_error},
        in.parts.dtype, rounding);
    ExpectedOutputs out;
    out.emplace_back("dq", std::move(expected.query_grad));
    out.emplace_back("dk", std::move(expected.key_grad));
    out.emplace_back("dv", std::move(expected.value_grad));
    return out;
}

ExpectedOutputs expected_wide(const FlashParts& parts, const ref::RoundingClass& rounding) {
    return expected_of(FlashGradientNumbers(parts), rounding);
}

std::string wide_place(const FlashParts& parts, const std::string& name, std::size_t k) {
    FlashParts shape;
    shape.shape = parts.shape;
    shape.shape.head_dim += shape.shape.rope_dim;
    shape.shape.rope_dim = 0;
    return packed_place(shape, name, k);
}

Verdict verdict_on_wide(const FlashParts& parts, const std::string& name, std::vector<double> left,
                        std::vector<double> right, const std::vector<double>& allowed,
                        const std::string& relation) {
    return verdict_within(name, std::move(left), std::move(right), allowed, relation,
                          [&](std::size_t k) { return wide_place(parts, name, k); });
}

Verdict verdict_on_expected(const FlashParts& parts, const FlashRun& run,
                            const ExpectedOutputs& expected, const std::string& relation) {
    Verdict all;
    for (const auto& [name, values] : expected)
        join(all, verdict_on_wide(parts, name, wide_values(parts, run, name), values.value,
                                  allowance(values), relation));
    return all;
}

std::size_t slots(const FlashParts& parts) {
    return parts.shape.query_lengths.size() * static_cast<std::size_t>(parts.shape.kv_heads);
}

Identity identity_per_slot(const FlashParts& parts, std::size_t width) {
    Identity identity(slots(parts) * width);
    const auto heads = static_cast<std::size_t>(parts.shape.kv_heads);
    for (std::size_t k = 0; k < identity.place.size(); ++k) {
        const std::size_t slot = k / width;
        identity.place[k] =
            fmt::format("{} {}, key/value head {}", parts.shape.packed ? "sequence" : "batch",
                        slot / heads, slot % heads);
        if (width > 1) identity.place[k] += fmt::format(", channel {}", k % width);
    }
    return identity;
}

}  // namespace attncheck::properties
