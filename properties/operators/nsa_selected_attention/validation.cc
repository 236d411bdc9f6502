// Validation of selected attention: a legal call with edits; the ruling on them is the reference's
// predicate.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

void add_attribute_edits(EditGroups& groups, const SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    groups.push_back({"scale_value=nan", "scale_value=inf", "scale_value=-inf", "scale_value=1e300",
                      "scale_value=-1e39", "scale_value=0", "scale_value=-1",
                      "scale_value=1e-300"});
    groups.push_back(values_of("head_num", {0, -1, s.query_heads + 1, s.query_heads - 1, s.kv_heads,
                                            2 * s.query_heads, 129, kMax, kMin}));
    groups.push_back(values_of("sparse_mode", {0, 1, 2, 3, -1, 8, kMax, kMin}));
    groups.push_back(
        values_of("selected_block_size", {0, -16, 8, 17, 24, s.block + 8, s.block - 16,
                                          s.block + 16, 2 * s.block, 144, 256, kMax, kMin}));
    groups.push_back(
        values_of("selected_block_count", {0, -1, s.count - 1, s.count + 1, 33, 64, kMax, kMin}));
    groups.push_back({"input_layout=\"BSND\"", "input_layout=\"tnd\"", "input_layout=\"\"",
                      "input_layout=\"TNDX\"", "input_layout=\"TN\"", "input_layout=\" TND\""});
    groups.push_back({"input_layout.absent"});
    groups.push_back(values_of("all.dim", {16, 64, 112, 144, 160, 200, 256}));
    groups.push_back(values_of("all.value_dim", {16, 64, 144, 160, 192, 256}));
    groups.push_back(values_of("all.kv_heads", {0, 129}));
    groups.push_back(values_of("all.group", {0, 33, 34}));
    groups.push_back(values_of("all.block", {0, 8, 24, 136, 144}));
    groups.push_back(values_of("all.count", {0, 33, 40}));
    groups.push_back(values_of("all.dtype", {ATTNCHECK_FLOAT32}));
    groups.push_back(values_of("rows.q", {(1 << 21) + 1, std::int64_t{1} << 40}));
    groups.push_back(values_of("rows.kv", {(1 << 21) + 1, std::int64_t{1} << 40}));
    groups.push_back(values_of("sequences", {1024, 1025}));
    groups.push_back({"heads.uneven"});
    groups.push_back({"all.dims=64"});
    groups.push_back({"long.q=140000"});
    groups.push_back({fmt::format("long.kv={}", s.block * (140000 / s.block))});
    // Each of these has one rule to itself, and every chance to be missed among many values.
    for (const char* alone : {"sparse_mode=1", "all.value_dim=192", "all.dim=64", "all.group=33",
                              "selected_block_count=33", "scale_value=nan"})
        groups.push_back({alone});
    const auto other_half =
        parts.dtype == ref::Dtype::fp16 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
    for (const char* tensor : {"key", "value"})
        groups.push_back({fmt::format("{}.dtype={}", tensor, static_cast<int>(other_half))});
}

/// Every single change that is tried.
EditGroups possible_edits(const Spec& spec) {
    const SelectedParts parts = selected_lists(spec);
    EditGroups groups;
    const Call call = outline_of(extents_of(spec));
    for (const Tensor& tensor : call.tensors)
        if (tensor.present) add_tensor_edits(groups, tensor.name, tensor.shape);
    add_attribute_edits(groups, parts);
    add_length_edits(groups, "actual_seq_q_len", spec.lists[0], parts.shape.total_queries);
    add_length_edits(groups, "actual_seq_kv_len", spec.lists[1], parts.shape.total_keys);
    groups.push_back(
        values_of("actual_seq_kv_len.size", {std::ssize(spec.lists[1]) - 1, std::int64_t{0}}));
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

/// Validation looks at arguments, not at elements: few of them make room for many cases.
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
    spec.recipe = Recipe::zeros;
    if (spec.number("mask_shape") == static_cast<std::int64_t>(MaskExtent::large))
        spec.set("mask_shape", 0);
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
}

}  // namespace

void add_selected_validation(std::vector<Property>& list, bool) {
    add_validation_properties(list, plain_data, possible_edits, 24);
}

}  // namespace attncheck::properties
