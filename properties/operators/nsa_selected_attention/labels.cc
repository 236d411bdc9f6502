// The labels of a case of selected attention, and the classes that a run must reach.
#include "properties/operators/labels.h"

#include <algorithm>

#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Features of the lists and of the mask.
struct Visibility {
    bool duplicate = false, diagonal_twice = false, row_without_key = false, shared_block = false;
    bool heads_differ = false, unsorted = false;
};

Visibility visibility_of(const Spec& spec) {
    Visibility v;
    const SelectedParts parts = selected_lists(spec);
    const ref::SelectedAttentionShape& s = parts.shape;
    const auto queries = ref::selected_queries(s);
    const auto columns = parts.columns();
    std::vector<ref::KeyColumn> listed;
    std::vector<std::uint32_t> previous;
    for (Int t = 0; t < s.total_queries; ++t) {
        const auto& query = queries[static_cast<std::size_t>(t)];
        if (query.sequence < 0) continue;
        for (Int n = 0; n < s.kv_heads; ++n) {
            listed.clear();
            columns(t, n * s.query_heads / s.kv_heads, listed);
            v.row_without_key = v.row_without_key || listed.empty();
            if (query.kv_length == 0) continue;
            const auto first = parts.topk.begin() + (t * s.kv_heads + n) * s.count;
            std::vector<std::uint32_t> list(first, first + s.count);
            v.unsorted = v.unsorted || !std::is_sorted(list.begin(), list.end());
            v.heads_differ = v.heads_differ || (n > 0 && list != previous);
            previous = list;
            std::sort(list.begin(), list.end());
            v.duplicate = v.duplicate || std::adjacent_find(list.begin(), list.end()) != list.end();
            v.diagonal_twice = v.diagonal_twice ||
                               std::count(list.begin(), list.end(),
                                          static_cast<std::uint32_t>(query.position / s.block)) > 1;
        }
    }
    return v;
}

void label_lengths(const Spec& spec, Labels& labels) {
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    const std::size_t last = q.size() - 1;
    const auto empty = [&](std::size_t i) { return q[i] == 0 || kv[i] == 0; };
    labels.add(last > 0 && empty(0), "leading_empty");
    labels.add(last > 0 && empty(last), "trailing_empty");
    bool middle = false, differ = false;
    for (std::size_t i = 0; i < last; ++i) {
        middle = middle || (i > 0 && empty(i));
        differ = differ || q[i] != kv[i];
    }
    labels.add(middle, "middle_empty");
    labels.some([](Int one, Int other) { return one > 0 && other == 0; }, "queries_without_keys");
    labels.some([](Int one, Int other) { return one == 0 && other > 0; }, "keys_without_queries");
    labels.add(differ, "lengths_differ_before_another");
    labels.add(last > 0, "several_sequences");
    labels.add(spec.numbers[kSelBeyondQ] > 0 || spec.numbers[kSelBeyondKv] > 0, "beyond_last");
}

}  // namespace

std::vector<std::string> selected_labels(const Spec& spec) {
    const auto& n = spec.numbers;
    Labels labels(spec, {"topk", "logits", "scale", "group"});
    label_lengths(spec, labels);
    labels.add(n[kSelKvHeads] > 1, "several_kv_heads");
    labels.add(n[kSelGroup] > 16, "group_above_16");
    labels.add((n[kSelGroup] & (n[kSelGroup] - 1)) != 0, "odd_group");
    labels.add(n[kSelDim] == 192, "dim_192");
    labels.add(n[kSelValueDim] < n[kSelDim], "value_dim_smaller");
    labels.add(n[kSelBlock] * n[kSelCount] % 64 != 0, "ragged_tile");
    labels.add(n[kSelCount] > 16, "count_above_16");
    labels.add(n[kSelBlock] * n[kSelCount] >= 2048, "wide_lists");
    labels.add(n[kSelBlock] > 64, "block_above_64");
    const bool mask = n[kSelMask] != 0, causal = n[kSelSparse] == 2;
    labels.add(mask && causal, "causal");
    labels.add(mask && !causal, "mask_contents");
    labels.add(!mask && causal, "causal_mode_without_mask");
    labels.add(!mask, "no_mask");
    labels.add(n[kSelMaskShape] != 0, "mask_of_other_size");
    labels.layouts();
    labels.given();
    if (labels.edited()) return labels.take();
    const Visibility v = visibility_of(spec);
    labels.add(v.duplicate, "duplicate_block");
    labels.add(v.diagonal_twice && mask && causal, "diagonal_block_twice");
    labels.add(v.row_without_key, "row_without_key");
    labels.add(v.heads_differ, "lists_of_heads_differ");
    labels.add(v.unsorted, "unsorted_list");
    return labels.take();
}

std::vector<RequiredClass> selected_required_classes(bool gradient) {
    return Required(selected_description(gradient))
        .share(30, {"dim_192"})
        .share(25, {"fp16", "bf16", "several_sequences"})
        .share(20, {"causal"})
        .share(15, {"lengths_differ_before_another", "several_kv_heads", "odd_group",
                    "value_dim_smaller", "ragged_tile"})
        .share(10, {"mask_contents", "duplicate_block", "unsorted_list"})
        .share(8, {"beyond_last", "block_above_64", "strided", "row_without_key"})
        .share(5, {"mask_of_other_size", "lists_of_heads_differ"})
        .share(3, {"leading_empty", "trailing_empty", "queries_without_keys",
                   "keys_without_queries", "group_above_16", "causal_mode_without_mask"})
        .share(2, {"count_above_16"})
        .share(1, {"middle_empty", "broadcast", "reversed", "diagonal_block_twice"})
        .share(0.3, {"wide_lists"})
        .share(0.3, "group", {"1", "2", "3", "5", "8", "16", "17", "31", "32"})
        .recipes(0.5)
        .values(1, "topk", 1)
        .values(1, "logits")
        .values(1, "scale")
        .rare(0.2, {"far_strides", "repeated_rows", "reversed_columns", "one_buffer"})
        .given(5)
        .take();
}

}  // namespace attncheck::properties
