#include "properties/judge/tier_cases.h"

#include <algorithm>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/case/attention_fields.h"
#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

/// Logits at the ends of a small softcap are few numbers, whose casts err alike.
bool saturates(const Spec& spec) {
    return spec.schema->number("softcap") >= 0 && spec.number("softcap") > 0 && softcap_of(extents_of(spec)) < 1;
}

}  // namespace

bool is_tier_data(const Spec& spec) {
    if (spec.recipe != Recipe::normal || !spec.overrides.empty() || !spec.edits.empty())
        return false;
    for (const char* field : {"logits", "stats", "out"})
        if (!is_zero_or_missing(spec, field)) return false;
    const auto scale = static_cast<ScaleKind>(spec.number("scale"));
    if (scale == ScaleKind::zero || scale == ScaleKind::large) return false;
    return !saturates(spec) && std::ranges::none_of(spec.layouts, repeats);
}

void make_tier_case(Spec& spec, Random& random, std::int64_t unit, std::int64_t least,
                    std::int64_t max_pairs) {
    const auto keep_if_legal = [&spec](Spec changed) {
        const bool legal = !illegal(changed);
        if (legal) spec = std::move(changed);
        return legal;
    };
    spec.recipe = Recipe::normal;
    spec.overrides.clear();
    for (const char* field : {"logits", "stats", "out"})
        set_if_present(spec, field, 0);
    spec.set("scale", static_cast<std::int64_t>(
                          random.pick({ScaleKind::rsqrt, ScaleKind::rsqrt, ScaleKind::rsqrt,
                                       ScaleKind::eighth, ScaleKind::negative, ScaleKind::tenth})));
    if (saturates(spec)) spec.set("softcap_unit", 0);
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
    // Empty sequences stay empty, unless nothing else is left.
    const bool all = query_key_pairs(spec) == 0;
    const auto lengthen = [all](std::vector<std::int64_t>& lengths, std::int64_t length) {
        for (auto& one : lengths)
            if (all || one > 0) one = length;
    };
    for (int tries = 0; tries < 8; ++tries) {
        Spec wide = spec;
        if (tries > 3)
            wide.set("kv_heads", random.between(1, 2)), wide.set("group", random.between(1, 2));
        const std::int64_t heads = wide.number("kv_heads") * wide.number("group");
        const auto sequences = static_cast<std::int64_t>(wide.lists[0].size());
        const std::int64_t rows = random.between(160, 420) / (heads * sequences) + 1;
        const std::int64_t room = std::max<std::int64_t>(max_pairs / (rows * heads * sequences), 1);
        const std::int64_t keys = std::min<std::int64_t>(random.between(24, 200), room);
        const bool same = random.chance(30);
        lengthen(wide.lists[0], rows);
        lengthen(wide.lists[1], std::max(least, (same ? rows : keys) / unit * unit));
        if (query_key_pairs(wide) * heads <= 2 * max_pairs && keep_if_legal(wide)) return;
    }
}

void make_long_tier_case(Spec& spec, Random& random, const LongRows& rows) {
    constexpr std::int64_t kEnoughSums = 136, kFewest = 4;
    // The error of a factor (in=) is the same in all rows: with one key it looks like a wrong delta.
    constexpr std::int64_t kFewestKeys = 16;
    // Every pair also costs an exponential and a dozen products and sums of single numbers.
    constexpr std::int64_t kPair = 48;
    for (int tries = 0; tries < 8; ++tries) {
        Spec wide = spec;
        wide.set("kv_heads", random.between(1, 2));
        wide.set("group", random.between(1, 4));
        const std::int64_t heads = wide.number("kv_heads") * wide.number("group");
        std::int64_t length = rows.shortest;
        while (2 * length <= rows.longest && random.chance(85)) length *= 2;
        length = std::clamp(length + random.between(-length / 4, length / 4), rows.shortest,
                            rows.longest);
        const auto width = [&wide] {
            return wide.number("dim") + wide.number("value_dim") + kPair;
        };
        const auto sums = [&] {
            return std::clamp(rows.work / (length * width()), kFewest, kEnoughSums);
        };
        if (random.chance(85))
            for (const std::int64_t dim : {64, 32, 24, 16, 8}) {
                if (sums() >= kEnoughSums) break;
                Spec narrow = wide;
                narrow.set("dim", dim), narrow.set("value_dim", dim);
                if (!illegal(narrow)) wide = std::move(narrow);
            }
        const std::int64_t others =
            std::max((sums() + heads - 1) / heads, rows.of_queries ? kFewestKeys : 1);
        // Most masks hide most of a long row, or are not legal for it.
        if (tries >= 2 || random.chance(50))
            for (const char* field : {"mask", "mask_form", "mask_shape", "hides", "sparse"})
                set_if_present(wide, field, 0);
        const auto in_units = [&](std::int64_t keys) {
            return std::max({rows.least, rows.unit, keys / rows.unit * rows.unit});
        };
        wide.lists[0] = {rows.of_queries ? length : others};
        wide.lists[1] = {in_units(rows.of_queries ? others : length)};
        if (query_key_pairs(wide) * heads > 2 * rows.work / width()) {  // more keys than wished
            wide.set("kv_heads", 1), wide.set("group", 1);
            std::int64_t& queries = wide.lists[0][0];
            queries = std::clamp(2 * rows.work / (width() * wide.lists[1][0]), kFewest, queries);
        }
        if (illegal(wide)) continue;
        spec = std::move(wide);
        return;
    }
}

}  // namespace attncheck::properties
