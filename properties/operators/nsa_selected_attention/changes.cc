// Changes of a problem of selected attention, and of cases.
#include <algorithm>

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {

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

/// One sequence as a separate problem. Without keys the problem gets one row that belongs to no
/// sequence.
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

void with_less_data(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    for (auto& length : spec.lists[0]) length = (length + 1) / 2;
}

}  // namespace attncheck::properties
