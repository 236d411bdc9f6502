// Changes of a problem of compress attention, and of cases.
#include <algorithm>

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress_attention/problem.h"

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

}  // namespace

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
