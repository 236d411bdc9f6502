#include "properties/operators/nsa_compress_attention/runs.h"

#include <algorithm>
#include <numeric>

namespace attncheck::properties::compress_attention {
namespace {

/// The upper left corner of a mask.
void crop(Parts::Mask& mask, std::int64_t rows, std::int64_t columns) {
    if (!mask.present) return;
    std::vector<std::uint32_t> bits;
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto first = mask.bits.begin() + row * mask.shape[1];
        bits.insert(bits.end(), first, first + columns);
    }
    mask.bits = std::move(bits);
}

constexpr const char* kRowOutputs[] = {"softmax_max", "softmax_sum", "attention_out"};

}  // namespace

Run::Run(const Parts& parts, PropertyContext& context)
    : call(make_call(parts)),
      result(context.candidate.run(call, {})),
      trouble(verdict_unless_ok(result)) {
    const auto order = ref::compress_statistics_order(parts.shape);
    statistic_at_.resize(order.size());
    for (std::size_t p = 0; p < order.size(); ++p)
        statistic_at_[static_cast<std::size_t>(order[p])] = static_cast<std::int64_t>(p);
}

std::vector<std::uint32_t> Run::bits(std::string_view name) const {
    const auto& stored = result.outputs[tensor_index(call, name)];
    if (!name.starts_with("softmax")) return stored;
    std::vector<std::uint32_t> out;
    for (const auto p : statistic_at_)
        out.push_back(stored[static_cast<std::size_t>(p * ref::kStatisticLanes)]);
    return out;
}

std::vector<double> Run::values(std::string_view name) const {
    return decode_all(call.tensor(name).type(), bits(name));
}

std::string Run::place(const Spec& spec, const std::string& name, std::size_t k) const {
    return place_of(spec, call, name,
                    name.starts_with("softmax")
                        ? static_cast<std::size_t>(statistic_at_[k] * ref::kStatisticLanes)
                        : k);
}

ExpectedOutputs expected_rows(const Parts& parts, const ref::RoundingClass& rounding) {
    const AttentionProblem problem = problem_of(parts);
    ExpectedOutputs out = expected_of(problem, rounding);
    for (auto& [name, tensor] : out) {
        if (!problem.output_named(name).is_statistic()) continue;
        ref::ExpectedTensor first(tensor.size() / ref::kStatisticLanes);
        for (std::size_t k = 0; k < first.size(); ++k) {
            first.value[k] = tensor.value[k * ref::kStatisticLanes];
            first.bound[k] = tensor.bound[k * ref::kStatisticLanes];
            first.overflow[k] = tensor.overflow[k * ref::kStatisticLanes];
        }
        tensor = std::move(first);
    }
    return out;
}

Verdict verdict_on_equal_runs(const Spec& spec, const Run& left, const Run& right,
                              const ExpectedOutputs& expected, const std::string& relation) {
    Verdict all;
    for (const char* name : kRowOutputs)
        join(all, verdict_within(name, left.values(name), right.values(name),
                                 times(allowance(tensor_of(expected, name)), 2), relation,
                                 [&](std::size_t k) { return left.place(spec, name, k); }));
    return all;
}

Verdict verdict_on_equal_lists(const Spec& spec, PropertyContext& context, const Parts& parts,
                               const std::vector<std::int64_t>& left,
                               const std::vector<std::int64_t>& right,
                               const std::string& relation) {
    if (left == right) return {};
    const AttentionProblem problem = problem_of(parts);
    Verdict all = verdict_on_lists(problem, left, context.rounding, ref::Grant::rounding,
                                   relation + ", the first of two runs");
    join(all, verdict_on_lists(problem, right, context.rounding, ref::Grant::rounding,
                               relation + ", the second of two runs"));
    return all;
}

std::vector<std::int64_t> rows_in_sequences(const Parts& parts) {
    const auto& lengths = parts.shape.query_lengths;
    std::vector<std::int64_t> rows(
        static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
}

Parts with_heads(const Parts& parts, const std::vector<std::int64_t>& query_source,
                 const std::vector<std::int64_t>& kv_source) {
    const ref::CompressAttentionShape& s = parts.shape;
    Parts to = parts;
    to.shape.query_heads = std::ssize(query_source);
    to.shape.kv_heads = std::ssize(kv_source);
    to.query = gather_heads(parts.query, s.query_heads, query_source, s.head_dim);
    to.key = gather_heads(parts.key, s.kv_heads, kv_source, s.head_dim);
    to.value = gather_heads(parts.value, s.kv_heads, kv_source, s.value_dim);
    return to;
}

Parts single_sequence(const Parts& all, std::size_t b) {
    Parts one = all;
    ref::CompressAttentionShape& s = one.shape;
    const std::int64_t query = row_starts(s.query_lengths)[b], key = row_starts(s.cmp_lengths)[b],
                       queries = s.query_lengths[b], keys = s.cmp_lengths[b];
    s.query_lengths = {queries};
    s.cmp_lengths = {keys};
    s.total_queries = queries;
    s.total_keys = keys;
    one.query = slice(all.query, query, queries, s.query_heads * s.head_dim);
    one.key = slice(all.key, key, keys, s.kv_heads * s.head_dim);
    one.value = slice(all.value, key, keys, s.kv_heads * s.value_dim);
    crop(one.mask, queries, keys);
    crop(one.topk_mask, queries, s.select_blocks(keys));
    one.fit_mask_shapes();
    return one;
}

void with_less_data(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    for (auto& length : spec.lists[0]) length = (length + 1) / 2;
}

void lengthen_keys(Spec& spec) {
    const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride],
                       least = (spec.numbers[kCount] - 1) * keys + 1;
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::max(length, least);
}

}  // namespace attncheck::properties::compress_attention
