// The labels of a case of flash attention, and the classes that a run must reach.
#include "properties/operators/labels.h"

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

bool some_row_without_key(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int i = 0; i < s.query_lengths[b]; ++i) {
            const ref::KeyRange range = ref::visible_range(s, b, i);
            if (range.begin >= range.end) return true;
        }
    return false;
}

}  // namespace

std::vector<std::string> flash_labels(const Spec& spec) {
    const auto& n = spec.numbers;
    Labels labels(spec, {"layout", "logits", "scale", "pse", "drop"});
    const bool mask = n[kFaMask] != 0, tnd = is_tnd(spec);
    if (mask)
        labels.value_of("sparse");
    else
        labels.add("no_mask");
    if (mask && flash_reads_mask(n[kFaSparse])) labels.value_of("mask_form");
    if (mask && (n[kFaSparse] == 0 || n[kFaSparse] == 4)) labels.value_of("tokens");
    if (n[kFaPse] != 0) labels.value_of("pse_type");
    if (flash_is_fp8(spec)) labels.value_of("result");
    labels.lengths();
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    const bool several = q.size() > 1;
    labels.add(tnd && several && (q[0] == 0 || kv[0] == 0), "leading_empty");
    labels.add(tnd && several && (q.back() == 0 || kv.back() == 0), "trailing_empty");
    labels.add(several, tnd ? "several_sequences" : "several_batches");
    labels.heads_and_widths();
    labels.add(n[kFaRope] > 0, "rope");
    labels.add(longest(kv) > 1024, "keys_above_1024");
    labels.add(longest(q) > 1024, "queries_above_1024");
    labels.add(n[kFaBeyondQ] > 0 || n[kFaBeyondKv] > 0, "beyond_last");
    labels.add(tnd && n[kFaOrder] != 0, "same_as_input");
    labels.add(n[kFaStart] != 0, "start_indices");
    labels.layouts(false);
    labels.given();
    if (labels.edited()) return labels.take();
    labels.add(some_row_without_key(flash_shape_parts(spec)), "row_without_key");
    std::vector<std::string> out = labels.take();
    name_flash_corners(spec, out);
    return out;
}

std::vector<RequiredClass> flash_required_classes(bool gradient) {
    return Required(flash_description(gradient))
        .share(20, {"grouped_heads", "several_kv_heads"})
        .share(15, {"fp16", "bf16", "several_batches", "value_dim_smaller", "odd_dim"})
        .share(10, {"no_mask", "fewer_queries", "several_sequences"})
        .share(8, {"fp32", "square", "more_queries", "same_as_input", "strided"})
        .share(3, {"row_without_key"})
        .share(2, {"queries_without_keys", "wide_dim", "beyond_last"})
        .share(1, {"keys_without_queries", "leading_empty", "trailing_empty", "rope",
                   "start_indices"})
        .share(0.5, {"keys_above_1024", "queries_above_1024"})
        .values(5, "layout")
        .values(0.5, "sparse")
        .values(0.2, "mask_form")
        .values(0.1, "tokens")
        .share(0.3, "pse", {"plain", "one_batch", "one_row", "one_batch_row", "flat_keys",
                            "flat_pairs", "slopes", "batch_slopes"})
        .values(0.5, "pse_type")
        .values(0.5, "drop")
        .recipes(0.5)
        .values(1, "logits")
        .values(1, "scale")
        // Of the corner cases those that a run of 1000 cases cannot well miss; the others, and
        // every pair of features, are flash_corners_test.cc's and flash_pairs_test.cc's.
        .corners(0.05,
                 {"7", "8", "9", "10.top_left", "14.leading_empty", "14.trailing_empty",
                  "14.no_keys", "15.queries", "15.keys", "16", "17", "18.two", "18.three",
                  "18.one_kv_head", "19.value_smaller", "19.value_one", "19.dim_one", "19.dim_odd",
                  "24", "25.rows", "26", "27.behind_scale", "27.before_scale", "30.slopes",
                  "30.negative", "32.bool", "32.any_byte", "33.single", "33.one", "35.far",
                  "35.equal", "35.negative_scale", "36.one_key", "36.one_query", "36.odd_keys",
                  "39", "40.query", "40.key", "40.value"})
        .rare(0.2, {"far_strides", "repeated_rows", "reversed_columns", "one_buffer"})
        .rare(0.1, {"corner:24.rarely_kept", "corner:27.hidden", "corner:36.keys_above_4096"})
        .given(3)
        .take();
}

}  // namespace attncheck::properties
