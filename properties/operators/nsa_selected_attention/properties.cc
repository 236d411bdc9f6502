// The properties of selected attention and its gradient, and the cases that the laws want.
#include <algorithm>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

void make_lattice(Spec& spec, Random& random) {
    spec.set("logits", random.chance(50) ? 1 : 2);  // equal, dominant
    spec.set("scale", static_cast<std::int64_t>(
                          random.pick({ScaleKind::one, ScaleKind::eighth, ScaleKind::rsqrt})));
    // A power of two of visible keys: blocks and counts that are, and no mask for a part.
    const std::int64_t block = random.pick<std::int64_t>({16, 16, 32, 64, 128});
    const std::int64_t count =
        random.pick<std::int64_t>({1, 1, 2, 2, 4, block > 32 ? 1 : 8, block > 16 ? 1 : 16});
    spec.set("block", block);
    spec.set("count", count);
    for (auto& length : spec.lists[1])
        if (length > 0) length = block * (count + random.between(0, 2));
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 40);
    if (random.chance(50)) spec.set("mask", 0), spec.set("mask_shape", 0);
    set_if_present(spec, "stats", 0);
    set_if_present(spec, "out", 0);
}

/// One forward case in sixteen, and one gradient in a hundred, has tens of thousands of keys:
/// positions that leave 16 bits.
void now_and_then_far(Spec& spec, Random& random) {
    if (!random.chance(spec.schema->number("stats") < 0 ? 6 : 1)) return;
    spec.set("kv_heads", 1);
    spec.set("group", 1);
    spec.set("dim", 128);
    spec.set("value_dim", 128);
    const std::int64_t block = spec.number("block");
    spec.set("count", std::min<std::int64_t>(spec.number("count"), 2));
    spec.set("topk", static_cast<std::int64_t>(random.pick({TopkKind::last, TopkKind::shuffled})));
    const std::int64_t keys = 32768 + 4 * block;
    spec.lists = {{random.between(1, 3)}, {keys / block * block}};
    if (spec.number("mask") != 0) spec.set("sparse", 0), spec.set("mask_shape", 0);
    if (spec.recipe == Recipe::specials) spec.recipe = Recipe::normal;
}

/// A block that is listed twice makes the same rounding error twice.
bool has_distinct_blocks(TopkKind kind) {
    switch (kind) {
        case TopkKind::canonical:
        case TopkKind::ascending:
        case TopkKind::descending:
        case TopkKind::shuffled:
        case TopkKind::shared:
            return true;
        default:
            return false;
    }
}

/// Rows of 512 to 4096 keys, or, half of the gradients, sums over as many queries.
void make_long_rows_of_lists(Spec& spec, Random& random) {
    constexpr std::int64_t kShortest = 512;
    const bool of_queries = spec.schema->number("stats") >= 0 && random.chance(50);
    Spec wide = spec;
    if (!of_queries) {
        wide.set("block", random.pick<std::int64_t>({32, 64, 128, 128}));
        wide.set("count", random.between(kShortest / wide.number("block"), 32));
    }
    const std::int64_t unit = wide.number("block"), least = unit * wide.number("count");
    const std::int64_t longest = of_queries ? 4096 : least + 4 * unit;
    make_long_tier_case(wide, random,
                        {.shortest = of_queries ? kShortest : least,
                         .longest = longest,
                         .unit = unit,
                         .least = least,
                         .work = 60'000'000,
                         .of_queries = of_queries});
    if (!illegal(wide)) spec = std::move(wide);
}

void make_tier_case_of_lists(Spec& spec, Random& random) {
    spec.set("topk", static_cast<std::int64_t>(
                         random.pick({TopkKind::shuffled, TopkKind::shuffled, TopkKind::shared,
                                      TopkKind::ascending, TopkKind::canonical})));
    const std::int64_t block = random.pick<std::int64_t>({16, 16, 32, 64});
    const std::int64_t count = random.between(1, 128 / block);
    Spec small = spec;
    small.set("block", block);
    small.set("count", count);
    for (auto& length : small.lists[1])
        length = std::max<std::int64_t>(length, block * count) / block * block;
    if (!illegal(small)) spec = small;
    const std::int64_t unit = spec.number("block"), least = unit * spec.number("count");
    const std::int64_t dims = spec.number("dim") + spec.number("value_dim");
    // A row sees `least` keys, however long its sequence is.
    make_tier_case(spec, random, unit, least, 2'000'000 / dims * 4);
    if (random.chance(kLongTierCases)) make_long_rows_of_lists(spec, random);
}

bool is_tier_case(const Spec& spec) {
    return is_tier_data(spec) &&
           has_distinct_blocks(static_cast<TopkKind>(spec.numbers[kSelTopk]));
}

void with_another_sequence(Spec& spec, Random& random) {
    if (spec.lists[0].size() > 1) return;
    spec.lists[0].push_back(random.between(1, 4));
    spec.lists[1].push_back(spec.number("block") * spec.number("count"));
}

void with_spare_blocks(Spec& spec, Random& random) {
    for (auto& kv : spec.lists[1])
        if (kv > 0) kv += spec.numbers[kSelBlock] * random.between(0, 2);
}

void with_mask(Spec& spec, Random& random) {
    if (spec.numbers[kSelMask] != 0) return;
    spec.numbers[kSelMask] = random.between(1, 2);
}

void with_sequences(Spec& spec, Random& random) {
    spec.lists[0].push_back(random.between(1, 20));
    spec.lists[1].push_back(spec.numbers[kSelBlock] *
                            (spec.numbers[kSelCount] + random.between(0, 2)));
}

const AttentionCases kCases = {
    .unseen_keys = with_spare_blocks,
    .masked = with_mask,
    .is_masked = [](const Spec& spec) { return spec.numbers[kSelMask] != 0; },
    .less_data = with_fewer_queries,
    .several_sequences = with_sequences,
    .hidden = "unselected"};

Verdict check_full_size(const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = selected_inputs(spec);
    const auto pairs = static_cast<double>(problem.query_rows() * spec.numbers[kSelBlock] *
                                           spec.numbers[kSelCount]);
    return judge_full_size(full_size(selected_attention_operator(), spec, std::move(problem), pairs), spec,
                           is_tier_case(spec), context);
}

Spec large_masked_case(const Schema& schema, std::vector<Int> query, std::vector<Int> kv,
                       std::uint64_t seed) {
    Spec spec = large_case(schema, std::move(query), std::move(kv), seed);
    spec.numbers[kSelMask] = static_cast<Int>(MaskKind::boolean);
    spec.numbers[kSelMaskShape] = static_cast<Int>(MaskExtent::single);
    spec.numbers[kSelSparse] = 2;
    return spec;
}

}  // namespace

/// One long sequence with blocks from its past; rows of as many distinct blocks as there may be; and
/// several off every tile edge with wide groups,
/// D != Dv and blocks listed twice. First exact sums over a power of two of tokens.
std::vector<Spec> selected_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kBlock = 64, kCount = 4;
    const Int odd = Random(seed).between(1, 15);
    const Int longest = std::max(length / kBlock, kCount) * kBlock;
    Spec one = large_masked_case(schema, {longest - odd}, {longest}, seed);
    one.numbers[kSelKvHeads] = 1;
    one.numbers[kSelGroup] = 4;
    one.numbers[kSelBlock] = kBlock;
    one.numbers[kSelCount] = kCount;
    one.numbers[kSelTopk] = static_cast<Int>(TopkKind::scored);
    // Long rows of distinct blocks, which the tiers judge.
    Spec distinct = large_case(schema, {std::max<Int>(length / 16, 256)}, {longest}, seed + 2);
    distinct.numbers[kSelKvHeads] = 1;
    distinct.numbers[kSelGroup] = 4;
    distinct.numbers[kSelBlock] = kBlock;
    distinct.numbers[kSelCount] = std::min<Int>(32, longest / kBlock);
    distinct.numbers[kSelTopk] = static_cast<Int>(TopkKind::shuffled);

    const Int half = longest / 2 / 16 * 16;
    Spec several =
        large_masked_case(schema, {half / 2 + odd, 1, 0, half / 4 - odd},
                          {half, 64, 0, std::max<Int>(half / 2 / 16 * 16, 64)}, seed + 1);
    several.numbers[kSelDtype] = 0;
    several.numbers[kSelKvHeads] = 2;
    several.numbers[kSelGroup] = 2;
    several.numbers[kSelDim] = 192;
    several.numbers[kSelBlock] = 16;
    several.numbers[kSelCount] = 4;
    several.numbers[kSelTopk] = static_cast<Int>(TopkKind::repeated);
    Spec exact = distinct;  // rows of 2^k tokens
    with_exact_sums(exact);
    exact.set("dim", distinct.number("dim"));
    exact.set("value_dim", distinct.number("value_dim"));
    exact.set("count", exact_keys_of(distinct.number("count")));
    std::vector<Spec> cases{exact, one, several, distinct};
    add_exact_scores(cases);
    return cases;
}

std::vector<Property> selected_properties(bool gradient) {
    // Agreement: any order of accumulation, any tiling and either way of normalising stays within
    // the bound of verification.md 4.3 (forward) and 4.5 (gradient).
    // Domain  every legal case, every data recipe, every layout.
    // Kills   the mutants NSF-*, NSG-* and ALL-02 03 05.
    // Shrinks to one query, one block of 16 keys, one head, and the few elements that matter.
    std::vector<Property> list = attention_checks(
        selected_attention_operator(),
        {.adapt_agreement = now_and_then_far,
         .adapt_history = with_another_sequence,
         .earlier = {other_value("sparse", {0, 2}), other_value("mask", {0, 1}),
                     other_value("topk", {static_cast<Int>(TopkKind::shuffled),
                                          static_cast<Int>(TopkKind::first)})},
         .lattice = make_lattice,
         .tier_case = make_tier_case_of_lists,
         .is_tier_case = is_tier_case});
    add_selected_validation(list);
    add_selected_list_relations(list);
    list.push_back(selected_as_attention_law());
    add_attention_laws(list, selected_attention_operator(), gradient, kCases);
    list.push_back(full_size_property("rows and keys", check_full_size));
    return list;
}

}  // namespace attncheck::properties
