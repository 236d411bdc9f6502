#include "properties/operators/nsa_selected_attention/runs.h"

#include <algorithm>

namespace attncheck::properties {
namespace {

/// Place of a column of a query head among the keys [T2,N2].
std::size_t key_at(const SelectedParts& parts, const ref::KeyColumn& column, std::int64_t head) {
    const std::int64_t group = parts.shape.dense().group();
    return static_cast<std::size_t>(column.key * parts.shape.kv_heads + head / group);
}

void mark_seen(const SelectedParts& parts, const ref::ColumnLister& columns, std::int64_t t,
               std::vector<char>& seen) {
    std::vector<ref::KeyColumn> row;
    for (std::int64_t head = 0; head < parts.shape.query_heads;
         head += parts.shape.dense().group()) {
        row.clear();
        columns(t, head, row);
        for (const ref::KeyColumn& column : row) seen[key_at(parts, column, head)] = 1;
    }
}

}  // namespace

SelectedRun::SelectedRun(const SelectedParts& parts, PropertyContext& context)
    : call(make_selected_call(parts)),
      result(context.candidate.run(call, {})),
      trouble(verdict_unless_ok(result)) {}

const std::vector<std::uint32_t>& SelectedRun::bits(std::string_view name) const {
    return result.outputs[tensor_index(call, name)];
}

std::vector<double> SelectedRun::values(std::string_view name) const {
    return decode_all(call.tensor(name).type(), bits(name));
}

std::vector<std::string> SelectedRun::output_names() const {
    std::vector<std::string> names;
    for (const Tensor& tensor : call.tensors)
        if (tensor.output) names.push_back(tensor.name);
    return names;
}

std::optional<Verdict> trouble_of(std::initializer_list<const SelectedRun*> runs) {
    for (const SelectedRun* run : runs)
        if (run->trouble) return run->trouble;
    return std::nullopt;
}

Verdict verdict_on_runs(const Spec& spec, const SelectedRun& shown, const std::string& name,
                        std::vector<double> left, std::vector<double> right,
                        const std::vector<double>& allowed, const std::string& relation) {
    return verdict_within(name, std::move(left), std::move(right), allowed, relation,
                          [&](std::size_t k) { return place_of(spec, shown.call, name, k); });
}

Verdict verdict_on_equal_runs(const Spec& spec, const SelectedRun& left, const SelectedRun& right,
                              const ExpectedOutputs& left_expected,
                              const ExpectedOutputs& right_expected, const std::string& relation) {
    Verdict all;
    for (const std::string& name : left.output_names())
        join(all, verdict_on_runs(spec, left, name, left.values(name), right.values(name),
                                  sum_of(allowance(tensor_of(left_expected, name)),
                                         allowance(tensor_of(right_expected, name))),
                                  relation));
    return all;
}

Verdict verdict_on_equal_bits(const Spec& spec, const SelectedRun& left, const SelectedRun& right,
                              const std::string& relation, const OutputFilter& looked_at) {
    for (const std::string& name : left.output_names()) {
        Verdict verdict = verdict_on_same_bits(
            name, left.call.tensor(name).type(), left.bits(name), right.bits(name), relation,
            [&](std::size_t k) { return place_of(spec, left.call, name, k); },
            [&](std::size_t k) { return !looked_at || looked_at(name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

ExpectedOutputs expected_of(const SelectedParts& parts, const ref::RoundingClass& rounding) {
    return expected_of(selected_problem(parts), rounding);
}

std::vector<char> seen_keys(const SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    std::vector<char> seen(static_cast<std::size_t>(s.total_keys * s.kv_heads));
    const auto columns = parts.columns();
    for (std::int64_t t = 0; t < s.total_queries; ++t) mark_seen(parts, columns, t, seen);
    return seen;
}

std::vector<char> keys_seen_by(const SelectedParts& parts, std::int64_t t) {
    const ref::SelectedAttentionShape& s = parts.shape;
    std::vector<char> seen(static_cast<std::size_t>(s.total_keys * s.kv_heads));
    mark_seen(parts, parts.columns(), t, seen);
    return seen;
}

SelectedParts with_heads(const SelectedParts& parts, const std::vector<std::int64_t>& query_source,
                         const std::vector<std::int64_t>& kv_source) {
    const ref::SelectedAttentionShape& s = parts.shape;
    SelectedParts to = parts;
    to.shape.query_heads = std::ssize(query_source);
    to.shape.kv_heads = std::ssize(kv_source);
    to.query = gather_heads(parts.query, s.query_heads, query_source, s.head_dim);
    to.key = gather_heads(parts.key, s.kv_heads, kv_source, s.head_dim);
    to.value = gather_heads(parts.value, s.kv_heads, kv_source, s.value_dim);
    to.topk = gather_heads(parts.topk, s.kv_heads, kv_source, s.count);
    if (!parts.gradient) return to;
    to.output_grad = gather_heads(parts.output_grad, s.query_heads, query_source, s.value_dim);
    to.output = gather_heads(parts.output, s.query_heads, query_source, s.value_dim);
    to.row_max = gather_heads(parts.row_max, s.query_heads, query_source, 1);
    to.row_sum = gather_heads(parts.row_sum, s.query_heads, query_source, 1);
    return to;
}

/// One sequence as a problem of its own. Without keys it gets one row that belongs to no sequence.
SelectedParts single_sequence(const SelectedParts& all, std::size_t b) {
    SelectedParts one = all;
    ref::SelectedAttentionShape& s = one.shape;
    const std::int64_t query = row_starts(s.query_lengths)[b], key = row_starts(s.kv_lengths)[b],
                       queries = s.query_lengths[b], keys = s.kv_lengths[b];
    s.query_lengths = {queries};
    s.kv_lengths = {keys};
    s.total_queries = queries;
    s.total_keys = std::max<std::int64_t>(keys, 1);
    const auto key_rows = [&](const auto& bits, std::int64_t row) {
        return keys > 0 ? slice(bits, key, keys, row)
                        : std::vector<std::uint32_t>(static_cast<std::size_t>(row), 0);
    };
    one.query = slice(all.query, query, queries, s.query_heads * s.head_dim);
    one.key = key_rows(all.key, s.kv_heads * s.head_dim);
    one.value = key_rows(all.value, s.kv_heads * s.value_dim);
    one.topk = slice(all.topk, query, queries, s.kv_heads * s.count);
    if (all.gradient) {
        one.output = slice(all.output, query, queries, s.query_heads * s.value_dim);
        one.output_grad = slice(all.output_grad, query, queries, s.query_heads * s.value_dim);
        one.row_max = slice(all.row_max, query, queries, s.query_heads);
        one.row_sum = slice(all.row_sum, query, queries, s.query_heads);
    }
    if (!all.mask.present || all.sparse_mode != 0) return one;
    one.mask.bits.clear();
    for (std::int64_t row = 0; row < queries; ++row) {
        const auto first = all.mask.bits.begin() + row * all.mask.shape[1];
        one.mask.bits.insert(one.mask.bits.end(), first, first + keys);
    }
    one.mask.shape = {queries, keys};
    s.mask_columns = keys;
    return one;
}

void change_lists(SelectedParts& parts, std::int64_t count, const ListChange& fill) {
    const auto old = static_cast<std::size_t>(parts.shape.count);
    std::vector<std::uint32_t> topk;
    for (std::size_t first = 0; first < parts.topk.size(); first += old)
        fill(std::span<const std::uint32_t>(parts.topk).subspan(first, old), topk);
    parts.topk = std::move(topk);
    parts.shape.count = count;
}

void set_blocks(Spec& spec, std::int64_t block, std::int64_t count) {
    spec.numbers[kSelBlock] = block;
    spec.numbers[kSelCount] = count;
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::max((length + block - 1) / block, count) * block;
}

void fewer_queries(Spec& spec) {
    for (auto& length : spec.lists[0]) length = (length + 1) / 2;
}

void with_less_data(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    fewer_queries(spec);
}

}  // namespace attncheck::properties
