// What a case of flash attention is called, and which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

bool some_row_without_key(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (std::int64_t i = 0; i < s.query_lengths[b]; ++i) {
            const ref::KeyRange range = ref::visible_range(s, b, i);
            if (range.begin >= range.end) return true;
        }
    return false;
}

std::string value_name(const NumberField& field, std::int64_t value) {
    return field.names.empty() ? std::to_string(value)
                               : field.names[static_cast<std::size_t>(value)];
}

std::string value_name(const Spec& spec, FlashField field) {
    return value_name(spec.schema->numbers[field], spec.numbers[field]);
}

}  // namespace

std::vector<std::string> flash_labels(const Spec& spec) {
    const auto& n = spec.numbers;
    std::vector<std::string> out{value_name(spec, kFaDtype),
                                 fmt::format("data:{}", name_of(spec.recipe))};
    const auto name_value = [&](FlashField field) {
        out.push_back(
            fmt::format("{}:{}", spec.schema->numbers[field].key, value_name(spec, field)));
    };
    for (const FlashField field : {kFaLayout, kFaLogits, kFaScale, kFaPse, kFaDrop})
        name_value(field);
    const auto label = [&](bool applies, const char* name) {
        if (applies) out.emplace_back(name);
    };
    const bool mask = n[kFaMask] != 0, tnd = is_tnd(spec);
    if (mask)
        name_value(kFaSparse);
    else
        out.push_back("no_mask");
    if (mask && flash_reads_mask(n[kFaSparse])) name_value(kFaMaskForm);
    if (mask && (n[kFaSparse] == 0 || n[kFaSparse] == 4)) name_value(kFaTokens);
    if (n[kFaPse] != 0) name_value(kFaPseType);
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    bool less = false, equal = false, more = false, keyless = false, queryless = false;
    for (std::size_t b = 0; b < q.size(); ++b) {
        less = less || (q[b] < kv[b] && q[b] > 0);
        equal = equal || (q[b] == kv[b] && q[b] > 0);
        more = more || (q[b] > kv[b] && kv[b] > 0);
        keyless = keyless || (q[b] > 0 && kv[b] == 0);
        queryless = queryless || (q[b] == 0 && kv[b] > 0);
    }
    if (flash_is_fp8(spec)) name_value(kFaResult);
    label(less, "fewer_queries");
    label(equal, "square");
    label(more, "more_queries");
    label(keyless, "queries_without_keys");
    label(queryless, "keys_without_queries");
    label(tnd && q.size() > 1 && (q[0] == 0 || kv[0] == 0), "leading_empty");
    label(tnd && q.size() > 1 && (q.back() == 0 || kv.back() == 0), "trailing_empty");
    label(tnd && q.size() > 1, "several_sequences");
    label(!tnd && q.size() > 1, "several_batches");
    label(n[kFaGroup] > 1, "grouped_heads");
    label(n[kFaKvHeads] > 1, "several_kv_heads");
    label(n[kFaValueDim] < n[kFaDim], "value_dim_smaller");
    label(n[kFaDim] % 16 != 0, "odd_dim");
    label(n[kFaDim] > 128, "wide_dim");
    label(n[kFaRope] > 0, "rope");
    label(*std::max_element(kv.begin(), kv.end()) > 1024, "keys_above_1024");
    label(*std::max_element(q.begin(), q.end()) > 1024, "queries_above_1024");
    label(n[kFaBeyondQ] > 0 || n[kFaBeyondKv] > 0, "beyond_last");
    label(tnd && n[kFaOrder] != 0, "same_as_input");
    label(n[kFaStart] != 0, "start_indices");
    label(std::any_of(spec.layouts.begin(), spec.layouts.end(),
                      [](Layout l) { return l != Layout::dense; }),
          "strided");
    if (spec.schema->number("stats") >= 0) {
        label(n[kFaStats] != 0, "statistics_shifted");
        label(n[kFaOut] != 0, "output_perturbed");
    }
    label(!spec.edits.empty(), kEditedLabel);
    if (spec.edits.empty()) {
        label(some_row_without_key(flash_shape_parts(spec)), "row_without_key");
        name_flash_corners(spec, out);
    }
    return out;
}

std::vector<RequiredClass> flash_required_classes(bool gradient) {
    std::vector<RequiredClass> required = {{"fp16", 15},
                                           {"bf16", 15},
                                           {"fp32", 8},
                                           {"no_mask", 10},
                                           {"fewer_queries", 10},
                                           {"square", 8},
                                           {"more_queries", 8},
                                           {"queries_without_keys", 2},
                                           {"keys_without_queries", 1},
                                           {"leading_empty", 1},
                                           {"trailing_empty", 1},
                                           {"several_sequences", 10},
                                           {"several_batches", 15},
                                           {"grouped_heads", 20},
                                           {"several_kv_heads", 20},
                                           {"value_dim_smaller", 15},
                                           {"odd_dim", 15},
                                           {"wide_dim", 2},
                                           {"rope", 1},
                                           {"keys_above_1024", 0.5},
                                           {"queries_above_1024", 0.5},
                                           {"beyond_last", 2},
                                           {"same_as_input", 8},
                                           {"start_indices", 1},
                                           {"strided", 8},
                                           {"row_without_key", 3}};
    const auto all = [&](const char* kind, std::initializer_list<const char*> names,
                         double percent) {
        for (const char* name : names)
            required.push_back({fmt::format("{}:{}", kind, name), percent,
                                std::string_view(kind) == "corner"});
    };
    const auto every = [&](FlashField number, double percent) {
        const NumberField& field = flash_description(gradient).numbers[number];
        for (std::int64_t value = field.min; value <= field.max; ++value)
            required.push_back(
                {fmt::format("{}:{}", field.key, value_name(field, value)), percent});
    };
    every(kFaLayout, 5);
    every(kFaSparse, 0.5);
    every(kFaMaskForm, 0.2);
    every(kFaTokens, 0.1);
    all("pse",
        {"plain", "one_batch", "one_row", "one_batch_row", "flat_keys", "flat_pairs", "slopes",
         "batch_slopes"},
        0.3);
    every(kFaPseType, 0.5);
    every(kFaDrop, 0.5);
    all("data",
        {"ints", "ones", "onehot", "signs", "normal", "cancelling", "spiky", "huge", "subnormal",
         "specials"},
        0.5);
    every(kFaLogits, 1);
    every(kFaScale, 1);
    // Of the corner cases those that a run of 1000 cases cannot well miss; the others, and every
    // pair of features, are flash_coverage_test.cc's.
    all("corner",
        {"7",
         "8",
         "9",
         "10.top_left",
         "14.leading_empty",
         "14.trailing_empty",
         "14.no_keys",
         "15.queries",
         "15.keys",
         "16",
         "17",
         "18.two",
         "18.three",
         "18.one_kv_head",
         "19.value_smaller",
         "19.value_one",
         "19.dim_one",
         "19.dim_odd",
         "24",
         "25.rows",
         "26",
         "27.behind_scale",
         "27.before_scale",
         "30.slopes",
         "30.negative",
         "32.bool",
         "32.any_byte",
         "33.single",
         "33.one",
         "35.far",
         "35.equal",
         "35.negative_scale",
         "36.one_key",
         "36.one_query",
         "36.odd_keys",
         "39",
         "40.query",
         "40.key",
         "40.value"},
        0.05);
    if (gradient) {
        required.push_back({"statistics_shifted", 3});
        required.push_back({"output_perturbed", 3});
    }
    return required;
}

}  // namespace attncheck::properties
