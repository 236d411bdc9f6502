// Relations between the fields of flash attention, what its elements may be, and the claims that
// validation makes.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "properties/case/claims.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;


bool all_equal(const std::vector<Int>& lengths) {
    return std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) ==
           lengths.end();
}

/// Another mode, with tokens that no mode refuses.
void claim_sparse(Extents& e, Int mode) {
    e.claim("sparse", mode);
    e.claim("pre", 0);
    e.claim("next", 0);
    e.claim("tokens", static_cast<Int>(FlashTokens::pre_unlimited));
}

void claim_more_batches(Extents& e, Int count) {
    claim_batches(e, count, e["layout"] == static_cast<Int>(FlashLayout::tnd));
}

void claim_rows(Extents& e, Int length) {
    e.claim("q", length);
    e.claim("kv", length);
}

std::optional<std::string> illegal_layouts(const Spec& spec) {
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (spec.layouts[i] == Layout::one_column && is_compressed(spec) &&
            spec.schema->tensors[i].role == Role::bias)
            return "a compressed bias depends on i - j: its columns are not one";
    return std::nullopt;
}

}  // namespace

void add_flash_rules(Description& d, bool gradient) {
    d.repeats_anywhere = true;
    d.rules = {
        {"layout!=TND",
         [](const Extents& e) { return all_equal(e.lengths("q")) && all_equal(e.lengths("kv")); },
         "all batches have the same length outside TND"},
        {.when = "layout!=TND",
         .message = "beyond_q, beyond_kv and stats_order are for TND",
         .needs = "beyond_q=0 beyond_kv=0 stats_order=blocks"},
        {"", [](const Extents& e) { return e.rows("q") + e.rows("kv") <= 2 * kLongest; },
         "too many rows"},
        {"", [](const Extents& e) { return e["query_heads"] <= 256; },
         "kv_heads * group is more than 256"},
        {"", [](const Extents& e) { return e["value_dim"] <= e["dim"]; },
         "value_dim={value_dim} is larger than dim={dim}"},
        {"", [](const Extents& e) { return e["rope"] <= e["dim"]; },
         "rope={rope} is larger than dim={dim}"},
        {.when = "mask=absent",
         .message = "mask_form, tokens, pre and next need a mask",
         .needs = "mask_form=single tokens=given pre=0 next=0"},
        {.when = "sparse=2,3,4,6,7,8",
         .message = "mask_form is for sparse 0, 1 and 5",
         .needs = "mask_form=single"},
        {.when = "mask_form=packed",
         .message = "mask_form=packed is for TND",
         .needs = "layout=TND"},
        {.when = "prefix!=lowest",
         .message = "prefix is for sparse 5 and 6 with a mask",
         .needs = "mask sparse=5,6"},
        {.when = "pse=absent", .message = "start needs a pse", .needs = "start=absent"},
        {.when = "pse=slopes,batch_slopes",
         .message = "slopes take pse_type 2 and 3",
         .needs = "pse_type>=2"},
        {.when = "pse_type>=2",
         .message = "pse_type 2 and 3 take slopes",
         .needs = "pse=slopes,batch_slopes"},
        {.when = "pse=flat_keys,flat_pairs",
         .message = "flat biases are for TND",
         .needs = "layout=TND"},
        {.when = "drop=absent", .message = "keep needs a drop mask", .needs = "keep=one"}};
    if (!gradient) return;
    d.rules.push_back({"dtype=fp8_e5m2,fp8_e4m3fn",
                       [](const Extents& e) { return has_fp8(e.profile()); },
                       "dtype fp8_e5m2 and fp8_e4m3fn need --profile ascend950"});
    d.rules.push_back(
        {.when = "dtype=fp16,bf16,fp32",
         .message = "result is for fp8: otherwise the gradients have the dtype of the query",
         .needs = "result=fp16"});
}

std::optional<std::string> flash_element_rules(const Spec& spec) {
    const Extents extents = extents_of(spec);
    if (auto reason = illegal_layouts(spec)) return reason;
    for (const auto& [element, value] : spec.overrides)
        if (spec.schema->tensors[static_cast<std::size_t>(element.tensor)].role == Role::bias &&
            is_compressed(spec))
            return "a compressed bias depends on i - j alone: set cannot change it";
    const ref::Ruling ruling = rule(outline_of(extents));
    if (!ruling.accepted()) return ruling.message;
    return std::nullopt;
}

void add_flash_claims(Description& d) {
    constexpr Int kLargest = 2 * kLongest + 1;  // lengths are really listed
    constexpr Int kMostHeads = 256, kMostPrefixes = 2048, kDropRows = 65536;
    using Values = std::vector<Int>;
    struct Named {
        const char* key;
        void (*apply)(Extents&, Int) = nullptr;
        Values (*tried)(const Extents&) = nullptr;  ///< none: limits of the field
    };
    const Named claims[] = {
        {"all.dim"},
        {"all.value_dim"},
        {"all.rope", nullptr,
         [](const Extents& e) {
             const Int most = e["dim"] / 8 * 8;
             return e["rope"] > 0 ? Values{0, 4, e["rope"] + 1, most, most + 8} : Values{};
         }},
        {"all.kv_heads"},
        {"all.group"},
        {"all.query_heads", nullptr,
         [](const Extents& e) {
             return Values{e["query_heads"] + 1, kMostHeads, kMostHeads + 1};
         }},
        {"all.q", nullptr,
         [](const Extents& e) {
             return Values{kLongest, kLongest + 1, longest(e.lengths("kv")) + 1};
         }},
        {"all.kv", nullptr, [](const Extents&) { return Values{kLongest, kLongest + 1}; }},
        {"all.sparse", claim_sparse, [](const Extents&) { return Values{7}; }},
        {"all.batches", claim_more_batches,
         [](const Extents&) { return Values{0, kMostPrefixes, kMostPrefixes + 1}; }},
        {"all.rows", claim_rows, [](const Extents&) { return Values{}; }},
        {"short_drop.rows", claim_rows, [](const Extents&) { return Values{kDropRows}; }}};
    for (const auto& [key, apply, tried] : claims) {
        d.claims.push_back({.key = key, .largest = kLargest, .laid_out = false});
        if (apply) d.claims.back().apply = apply;
        if (tried) d.claims.back().tried = tried;
    }
    d.claims.back().except = "drop_mask";
}

}  // namespace attncheck::properties
