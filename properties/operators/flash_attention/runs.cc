// Runs of flash attention with their outputs in packed order, and verdicts on two of them.
#include "properties/operators/flash_attention/runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/case/row_order.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr Int kLanes = 8;  ///< copies of every statistic

/// Heads and width of an output in packed order.
struct PackedExtent {
    Int heads, width;
};
PackedExtent extent_of_output(const FlashParts& parts, std::string_view name) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int heads = is_of_keys(name) ? s.kv_heads : s.query_heads;
    if (name.starts_with("softmax")) return {heads, kLanes};
    if (name.ends_with("rope")) return {heads, s.rope_dim};
    return {heads, name == "dv" || name == "attention_out" ? s.value_dim : s.head_dim};
}

}  // namespace

bool is_of_keys(std::string_view output) { return output.starts_with("dk") || output == "dv"; }

FlashRun::FlashRun(const FlashParts& parts, PropertyContext& context,
                   const std::function<void(Call&)>& change) {
    Call call = make_flash_call(parts);
    if (change) change(call);
    const CallResult result = context.candidate.run(call, {});
    trouble = verdict_unless_ok(result);
    if (trouble) return;
    const Extents extents = flash_extents(parts, parts.gradient);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output || !tensor.present) continue;
        outputs.push_back({tensor.name, tensor.type(),
                           RowOrder(call.description->tensors[i], extents)
                               .from_memory(result.outputs[i])});
    }
}

const FlashRun::Output& FlashRun::output(std::string_view name) const {
    return *std::find_if(outputs.begin(), outputs.end(),
                         [&](const Output& output) { return output.name == name; });
}

bool FlashRun::has(std::string_view name) const {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const Output& output) { return output.name == name; });
}

std::vector<double> FlashRun::values(std::string_view name) const {
    return decode_all(output(name).dtype, bits(name));
}

std::vector<double> wide_values(const FlashParts& parts, const FlashRun& run,
                                const std::string& name) {
    if (parts.shape.rope_dim == 0 || (name != "dq" && name != "dk")) return run.values(name);
    return beside(run.values(name), parts.shape.head_dim, run.values(name + "_rope"),
                  parts.shape.rope_dim);
}

ExpectedOutputs packed_expected_of(const FlashParts& parts, const ref::RoundingClass& rounding) {
    FlashParts packed = parts;
    packed.layout = FlashLayout::tnd;  // the order of memory alone: shape.packed stays what it is
    packed.same_as_input = true;
    const AttentionProblem problem = flash_problem(std::move(packed));
    return in_call_order(problem, expected_of(problem, rounding));
}

std::vector<FlashRow> row_places(const std::vector<Int>& lengths, Int total_rows) {
    std::vector<FlashRow> rows;
    for (std::size_t b = 0; b < lengths.size(); ++b)
        for (Int i = 0; i < lengths[b]; ++i) rows.push_back({static_cast<Int>(b), i});
    rows.resize(static_cast<std::size_t>(total_rows));
    return rows;
}

std::string packed_place(const FlashParts& parts, const std::string& name, std::size_t k) {
    const bool of_keys = is_of_keys(name);
    const ref::FlashAttentionShape& s = parts.shape;
    const PackedExtent extent = extent_of_output(parts, name);
    const Int at = static_cast<Int>(k), row = at / (extent.heads * extent.width);
    const FlashRow place =
        of_keys ? row_places(s.kv_lengths, s.total_keys)[static_cast<std::size_t>(row)]
                : row_places(s.query_lengths, s.total_queries)[static_cast<std::size_t>(row)];
    const std::string where =
        place.sequence < 0 ? fmt::format("row {} beyond the last sequence", row)
                           : fmt::format("{} {}, {} {}", s.packed ? "sequence" : "batch",
                                         place.sequence, of_keys ? "key" : "query", place.position);
    return fmt::format("[{}, head {}, {} {}]", where, at / extent.width % extent.heads,
                       name.starts_with("softmax") ? "lane" : "channel", at % extent.width);
}

Verdict verdict_on_flash(const FlashParts& parts, const std::string& name, std::vector<double> left,
                         std::vector<double> right, const std::vector<double>& allowed,
                         const std::string& relation) {
    return verdict_within(name, std::move(left), std::move(right), allowed, relation,
                          [&](std::size_t k) { return packed_place(parts, name, k); });
}

Verdict verdict_on_equal_problems(const FlashParts& left, const FlashParts& right,
                                  PropertyContext& context, const std::string& relation) {
    const FlashRun a(left, context), b(right, context);
    if (auto trouble = first_trouble({&a, &b})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(left, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : a.outputs)
        if (b.has(name))
            join(all, verdict_on_flash(left, name, a.values(name), b.values(name),
                                       times(allowance(tensor_of(expected, name)), 2), relation));
    return all;
}

Verdict verdict_on_rounded_problems(const FlashParts& left, const FlashParts& right,
                                    PropertyContext& context, const std::string& relation) {
    const FlashRun a(left, context), b(right, context);
    if (auto trouble = first_trouble({&a, &b})) return *trouble;
    const ExpectedOutputs left_expected = packed_expected_of(left, context.rounding),
                          right_expected = packed_expected_of(right, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : a.outputs) {
        if (!b.has(name)) continue;
        const ref::ExpectedTensor &from = tensor_of(left_expected, name),
                                  &to = tensor_of(right_expected, name);
        std::vector<double> moved = a.values(name);
        for (std::size_t k = 0; k < moved.size(); ++k)
            if (from.value[k] != to.value[k]) moved[k] += to.value[k] - from.value[k];
        join(all, verdict_on_flash(left, name, moved, b.values(name),
                                   sum_of(allowance(from), allowance(to)), relation));
    }
    return all;
}

Verdict verdict_on_equal_bits(const FlashParts& parts, const FlashRun& left, const FlashRun& right,
                              const std::string& relation, const OutputFilter& looked_at) {
    for (const auto& [name, dtype, bits] : left.outputs) {
        if (!right.has(name)) continue;
        Verdict verdict = verdict_on_same_bits(
            name, dtype, bits, right.bits(name), relation,
            [&, &name = name](std::size_t k) { return packed_place(parts, name, k); },
            [&, &name = name](std::size_t k) { return !looked_at || looked_at(name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

Verdict verdict_on_identical_problems(const FlashParts& left, const FlashParts& right,
                                      PropertyContext& context, const std::string& relation) {
    const FlashRun a(left, context), b(right, context);
    if (auto trouble = first_trouble({&a, &b})) return *trouble;
    return verdict_on_equal_bits(left, a, b, relation);
}

}  // namespace attncheck::properties
