#include "properties/case/large_together.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/attention_draws.h"
#include "properties/case/derived.h"
#include "properties/case/many_sequences.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr int kTogetherPercent = 2, kTogetherTries = 32, kThirdPercent = 25, kAllKeysWeigh = 75;
constexpr double kMostElementsTogether = 1.5e6;
constexpr Int kMostCostTogether = Int{8} << 20, kMostDecoded = 16;

/// Values of an extent: large ones, around which tables and tiles end, and small ones.
struct LargeSizes {
    std::vector<Int> large, small;
};

const std::map<std::string, LargeSizes, std::less<>>& sizes_of_fields() {
    static const std::map<std::string, LargeSizes, std::less<>> kSizes{
        {"kv_heads", {{8, 9, 12, 16, 17, 24, 32, 33, 40, 64, 65}, {1, 1, 2}}},
        {"heads", {{8, 9, 12, 16, 17, 24, 32, 33, 40, 64, 65}, {1, 1, 2}}},
        {"group", {{8, 9, 12, 16, 17, 24, 31, 32, 33, 64, 65, 130}, {1, 1, 2}}},
        {"dim", {{128, 136, 192, 200, 256, 264, 320}, {8, 16, 24}}},
        {"value_dim", {{128, 136, 192, 200, 256, 264, 320}, {8, 16, 24}}},
        {"block", {{64, 80, 96, 112, 128}, {16, 32}}},
        {"stride", {{48, 64, 96, 112, 128}, {16}}},
        {"select", {{64, 80, 96, 112, 128}, {16, 32}}},
        {"count", {{12, 17, 24, 25, 31, 32}, {1, 2}}},
        {"page", {{64, 100, 128, 256}, {1, 4, 16}}},
        {"parts", {{9, 17, 32, 33, 64}, {1, 2, 3}}},
        {"rows", {{130, 257, 1025, 2049}, {1, 2, 5}}},
    };
    return kSizes;
}

const LargeSizes kLargeLengths{{130, 258, 514, 1026, 2050, 4100}, {1, 5, 17, 18, 40}};

/// An extent: a field, or the lengths of a list.
struct LargeExtent {
    std::size_t at = 0;
    bool is_list = false;
    const LargeSizes* sizes = nullptr;
};

std::vector<LargeExtent> extents_with_sizes(const Spec& spec) {
    std::vector<LargeExtent> extents;
    for (std::size_t i = 0; i < spec.numbers.size(); ++i)
        if (const auto sizes = sizes_of_fields().find(spec.schema->numbers[i].key); sizes != sizes_of_fields().end())
            extents.push_back({i, false, &sizes->second});
    for (std::size_t k = 0; k < spec.lists.size(); ++k) extents.push_back({k, true, &kLargeLengths});
    return extents;
}

Int field_or(const Spec& spec, const char* key, Int otherwise) { return spec.schema->number(key) >= 0 ? spec.number(key) : otherwise; }

Int in_steps(const NumberField& field, Int value) {
    value = std::clamp(value, field.min, field.max);
    return field.min + (value - field.min) / field.step * field.step;
}

void set_extent(Spec& spec, const LargeExtent& extent, Int value, Random& random) {
    if (!extent.is_list) {
        spec.numbers[extent.at] = in_steps(spec.schema->numbers[extent.at], value);
        return;
    }
    const Int count = field_or(spec, "count", 0), block = field_or(spec, "block", 0);
    if (extent.at > 0 && count > 0)  // the lists of selected blocks need so many keys
        value = std::max(value / block, count + random.between(0, 1)) * block;
    else if (extent.at == 0 && block > 0 && spec.lists.size() == 1)  // a compression has rows from a whole block on
        value = std::max(value, block + random.between(0, 20));
    else if (value > 4)
        value += random.between(-2, 2);
    if (extent.at == 0 && spec.schema->number("page") >= 0) value = std::min(value, kMostDecoded);
    spec.lists[extent.at] = {value};
}

Int cost_of(const Spec& spec) {
    if (spec.lists.empty() || spec.schema->number("group") < 0) return 0;
    const Int dims = spec.number("dim") + spec.number("value_dim"), heads = spec.number("kv_heads") * spec.number("group");
    if (spec.lists.size() == 1) return spec.lists[0][0] * spec.lists[0][0] * heads * dims;  // the module
    const bool selects = spec.schema->number("count") >= 0 && spec.schema->number("select") < 0;
    return heads * dims * (selects ? total(spec.lists[0]) * spec.number("block") * spec.number("count") : query_key_pairs(spec));
}

/// One new token for each of several sequences: few cases are so where keys have no pages.
bool decodes_several(const Spec& spec) {
    return spec.schema->number("page") < 0 && spec.lists.size() > 1 && spec.lists[0].size() > 1 && std::ranges::all_of(spec.lists[0], [](Int q) { return q == 1; });
}

}  // namespace

void draw_large_together(Spec& spec) {
    Random random(mix(spec.seed ^ 0x7B0A96Eull));
    if (!random.chance(kTogetherPercent)) return;
    const std::vector<LargeExtent> extents = extents_with_sizes(spec);
    const auto last = std::ssize(extents) - 1;
    if (last < 1 || std::ranges::any_of(spec.lists, [](const auto& list) { return list.empty(); }) || decodes_several(spec)) return;
    for (int k = 0; k < kTogetherTries; ++k) {
        const Int first = random.between(0, last), second = random.between(0, last), third = random.chance(kThirdPercent) ? random.between(0, last) : first;
        if (first == second) continue;
        for (const bool is_small : {false, true}) {  // as small as can be, where the large ones cost all there is
            Spec next = spec;
            next.overrides.clear();
            for (Int e = 0; e <= last; ++e) {
                const LargeExtent& extent = extents[static_cast<std::size_t>(e)];
                const bool is_large = e == first || e == second || e == third;
                const std::vector<Int>& values = is_large ? extent.sizes->large : extent.sizes->small;
                set_extent(next, extent, is_small && !is_large ? values.front() : random.pick(values), random);
            }
            if (random.chance(kAllKeysWeigh)) {
                next.recipe = Recipe::normal;
                if (next.schema->number("logits") >= 0) next.set("logits", 0);
                if (next.schema->number("scale") >= 0) next.set("scale", static_cast<Int>(ScaleKind::rsqrt));
            }
            if (cost_of(next) > kMostCostTogether || illegal(next) || elements_of_tensors(next) > kMostElementsTogether) continue;
            spec = std::move(next);
            return;
        }
    }
}

}  // namespace attncheck::properties
