// Validation of selected attention: a legal call with edits; the ruling on them is the reference's
// predicate.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/case/attention_draws.h"
#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

/// Every single change that is tried: those of the description, and those that aim at blocks.
EditGroups possible_edits(const Spec& spec) {
    const SelectedParts parts = selected_lists(spec);
    EditGroups groups = derived_edits(extents_of(spec));
    groups.push_back({fmt::format("long.kv={}", parts.shape.block * (140000 / parts.shape.block))});
    // Whole blocks, but fewer than are listed.
    const std::vector<std::int64_t>& keys = spec.lists[1];
    if (keys.back() > 0 && parts.shape.count > 1) {
        groups.push_back(
            {fmt::format("actual_seq_kv_len[{}]={}", keys.size() - 1,
                         std::accumulate(keys.begin(), keys.end() - 1,
                                         parts.shape.block * (parts.shape.count - 1)))});
    }
    // Block indices: of another sequence, one behind the last, negative.
    const std::int64_t all_blocks =
        parts.shape.total_keys / std::max<std::int64_t>(parts.shape.block, 1);
    std::vector<Edit> indices;
    for (const std::int64_t last : spec.lists[1])
        indices.emplace_back(
            fmt::format("topk_indices[{},{},{}]={}", 0, 0, 0, last / parts.shape.block));
    const auto at = [&](std::int64_t t, std::int64_t value) {
        indices.emplace_back(fmt::format("topk_indices[{},{},{}]={}", t, parts.shape.kv_heads - 1,
                                      parts.shape.count - 1, value));
    };
    for (const std::int64_t t : {std::int64_t{0}, parts.shape.total_queries - 1})
        for (const std::int64_t value : {std::int64_t{-1}, all_blocks - 1, all_blocks,
                                         std::int64_t{INT32_MAX}, std::int64_t{INT32_MIN}})
            at(t, value);
    // A block that the first sequence does not have, but the pack may.
    groups.push_back({indices.front()});
    groups.push_back(indices);
    return groups;
}

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    spec.set("group", std::min<std::int64_t>(spec.number("group"), 3));
    spec.set("kv_heads", std::min<std::int64_t>(spec.number("kv_heads"), 3));
    spec.set("count", std::min<std::int64_t>(spec.number("count"), 3));
    for (auto& list : spec.lists)
        if (list.size() > 3) list.resize(3);
    const std::int64_t block = spec.number("block"), least = block * spec.number("count");
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::min(length, least + block);
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 6);
    if (spec.lists[0] == std::vector<std::int64_t>(spec.lists[0].size(), 0)) spec.lists[0][0] = 1;
    if (spec.lists[1] == std::vector<std::int64_t>(spec.lists[1].size(), 0))
        spec.lists[1][0] = least;
    if (spec.number("mask_shape") == static_cast<std::int64_t>(MaskExtent::large))
        spec.set("mask_shape", 0);
    with_zeros_in_dense_tensors(spec);
}

}  // namespace

void add_selected_validation(std::vector<Property>& list) {
    add_validation_properties(list, plain_data, 24, possible_edits);
}

}  // namespace attncheck::properties
