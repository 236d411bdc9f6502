// The properties of flash attention and its gradient, and the cases that they want.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/unusual_arguments.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

void make_lattice(Spec& spec, Random& random) {
    spec.set("logits", random.between(1, 2));
    spec.set("scale", random.between(0, 2));
    spec.set("pse", 0), spec.set("pse_type", 1), spec.set("start", 0);
    if (spec.number("drop") != 0) spec.set("keep", random.between(0, 1));
    set_if_present(spec, "stats", 0);
    set_if_present(spec, "out", 0);
    with_power_of_two_keys(spec, random);
}

/// Another sparse mode or other tokens where a mask follows them.
std::vector<EarlierChange> earlier_changes() {
    const auto mode_of = [](const Spec& spec) { return spec.number("mask") != 0 ? spec.number("sparse") : -1; };
    return {other_value("sparse", {2, 3}, [=](const Spec& spec) { return mode_of(spec) >= 2 && mode_of(spec) <= 4; }),
            {"other tokens", [=](const Spec& spec) {
                 std::vector<Spec> ways;
                 if (mode_of(spec) != 0 && mode_of(spec) != 4) return ways;
                 const auto tokens = static_cast<FlashTokens>(spec.numbers[kFaTokens]);
                 const bool sees_none_ahead = spec.number("next") == 0 && tokens != FlashTokens::next_unlimited &&
                                              tokens != FlashTokens::unlimited;
                 ways.push_back(spec);
                 ways[0].set("tokens", static_cast<Int>(FlashTokens::pre_unlimited));
                 ways[0].set("next", sees_none_ahead ? longest(spec.lists[1]) : 0);
                 return ways;
             }},
            other_value("prefix", {static_cast<Int>(FlashPrefix::full), static_cast<Int>(FlashPrefix::lowest)},
                        [=](const Spec& spec) { return mode_of(spec) == 5 || mode_of(spec) == 6; }),
            other_value("keep", {1, 2}, [](const Spec& spec) { return spec.number("drop") != 0; }),
            other_value("pse_type", {1, 0, 2, 3},
                        [](const Spec& spec) { return pse_of(spec) != FlashPse::absent; }),
            other_value("stats_order", {0, 1})};
}

/// Where one key of a hundred is kept, errors are those of few products.
bool suits_tiers(FlashKeep keep) {
    return keep != FlashKeep::hundredth && keep != FlashKeep::thousandth;
}

void make_flash_tier_case(Spec& spec, Random& random) {
    if (!suits_tiers(static_cast<FlashKeep>(spec.numbers[kFaKeep])))
        spec.numbers[kFaKeep] = static_cast<std::int64_t>(FlashKeep::nine_tenths);
    make_dense_tier_case(spec, random, spec.schema == &flash_description(true));
}

bool is_flash_tier_data(const Spec& spec) {
    return is_tier_data(spec) && suits_tiers(static_cast<FlashKeep>(spec.numbers[kFaKeep]));
}

/// Visible pairs by the predicate of the sparse mode: what the mask hides besides is not known
/// without looking at it.
double pairs_of(const AttentionProblem& problem, const ref::FlashAttentionShape& shape) {
    return visible_pairs(problem, [&](std::size_t b, Int i) {
        const ref::KeyRange range = ref::visible_range(shape, b, i);
        return range.end - range.begin;
    });
}

Verdict check_full_size(const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = flash_inputs(spec);
    const auto shape =
        std::make_shared<const ref::FlashAttentionShape>(extras_of<FlashParts>(problem).shape);
    const double pairs = pairs_of(problem, *shape);
    FullSizeAttention of = full_size(flash_attention_operator(), spec, std::move(problem), pairs);
    of.columns_of = [shape](const std::vector<Int>& keys) {
        return ref::flash_columns_of(*shape, keys);
    };
    return judge_full_size(std::move(of), spec, is_flash_tier_data(spec) && !flash_is_fp8(spec), context);
}

Spec large_packed_case(const Schema& schema, std::vector<Int> query, std::vector<Int> kv,
                       std::uint64_t seed) {
    Spec spec = large_case(schema, std::move(query), std::move(kv), seed);
    spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::tnd);
    return spec;
}

}  // namespace

/// The size that is asked for, causal; several sequences off every tile edge with shared key heads;
/// everything visible in one of the other layouts, behind a dropout; and a band over positions that leave 16 bits and
/// pair numbers that leave 32, which costs little. First exact sums over a power of two of keys.
std::vector<Spec> flash_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kFp16 = 0, kMostDropped = 8192;
    std::vector<Spec> out;
    const auto with_mask = [](Spec& spec, Int sparse) {
        spec.numbers[kFaMask] = 1;
        spec.numbers[kFaSparse] = sparse;
    };
    Random random(seed);
    const Int odd = random.between(1, 15);

    Spec causal = large_packed_case(schema, {length}, {length}, seed);
    causal.numbers[kFaKvHeads] = 8;
    with_mask(causal, 3);
    out.push_back(causal);

    const Int half = std::max<Int>(length / 2, 64);
    Spec several = large_packed_case(schema, {half / 2 + odd, 1, 0, half / 4 - odd},
                                     {half - odd, 33, 5, half / 4}, seed + 1);
    several.numbers[kFaDtype] = kFp16;
    several.numbers[kFaKvHeads] = 2;
    several.numbers[kFaGroup] = 4;
    several.numbers[kFaDim] = 96;
    several.numbers[kFaValueDim] = 64;
    with_mask(several, 3);
    out.push_back(several);

    const Int quarter = std::max<Int>(length / 4 - odd, 64);
    Spec everything =
        large_case(schema, {quarter, quarter}, {quarter + 40, quarter + 40}, seed + 2);
    everything.numbers[kFaLayout] = static_cast<Int>(
        random.pick({FlashLayout::bnsd, FlashLayout::sbh, FlashLayout::bsnd, FlashLayout::bsh}));
    everything.numbers[kFaKvHeads] = 2;
    if (quarter <= kMostDropped) {  // a bit for every pair
        everything.numbers[kFaDrop] = static_cast<Int>(FlashDrop::random);
        everything.numbers[kFaKeep] = static_cast<Int>(FlashKeep::nine_tenths);
    }
    out.push_back(everything);

    const Int longest = long_where_linear(length) + odd;
    Spec band = large_packed_case(schema, {longest}, {longest}, seed + 3);
    band.numbers[kFaKvHeads] = 2;
    band.numbers[kFaDim] = band.numbers[kFaValueDim] = 64;
    with_mask(band, 4);
    band.numbers[kFaPre] = 500;
    band.numbers[kFaNext] = 3;
    out.push_back(band);

    Spec exact = large_case(schema, {std::min<Int>(length, 512) - odd}, {exact_keys_of(length)},
                            seed + 4);
    with_exact_sums(exact);
    exact.numbers[kFaKvHeads] = 2;
    exact.numbers[kFaGroup] = 2;
    out.insert(out.begin(), exact);
    add_exact_scores(out);
    return out;
}

std::vector<Property> flash_properties(bool gradient) {
    const AttentionOperator& of = flash_attention_operator();
    // Agreement: any order of accumulation, any tiling and either way of normalising stays within
    // the bound of verification.md 4.3 (forward) and 4.5 (gradient).
    // Domain  every legal case, every feature, data recipe and layout.
    // Shrinks to one batch, one query, one key, one channel, and the few elements that matter.
    std::vector<Property> list = attention_checks(
        of,
        {.adapt_agreement = [](Spec& spec, Random& random) { now_and_then_wide(spec, random, is_tnd(spec)); },
         .earlier = earlier_changes(),
         .lattice = make_lattice,
         .tier_case = make_flash_tier_case,
         .is_tier_case = is_flash_tier_data});
    list[0].case_factor = 4;  // many features
    list.push_back(unusual_arguments_property(
        [&of](const Spec& spec) { return attention_case(of, spec, ref::Grant::rounding); },
        effectless_flash_edits));
    list.back().adapt = [](Spec& spec, Random& random) {
        without_extremes(spec);
        if (random.chance(60) && spec.numbers[kFaRope] == 0 && !is_compressed(spec)) {
            without_mask(spec);
            spec.numbers[kFaSparse] = 0;
        }
    };
    add_flash_validation(list);
    add_flash_relations(list, gradient);
    list.push_back(full_size_property("rows and keys", check_full_size));
    // A bias that the scale multiplies does not follow the query.
    for (Property& property : list)
        if (property.name == "scale_folding")
            property.domain = [inner = property.domain](const Spec& spec) {
                const bool is_scaled = pse_of(spec) != FlashPse::absent &&
                                       spec.numbers[kFaPseType] == 1;
                return !is_scaled && (!inner || inner(spec));
            };
    // Relations change data by steps that fp8 does not have; what is compared with the reference
    // runs on it too.
    for (Property& property : list) {
        constexpr std::string_view kOnAnyType[] = {"agreement",  "non_finite",         "memory",
                                                   "repeatable", "concurrent",         "history",
                                                   "validation", "validation_combined"};
        if (std::find(std::begin(kOnAnyType), std::end(kOnAnyType), property.name) !=
            std::end(kOnAnyType))
            continue;
        property.domain = [inner = property.domain](const Spec& spec) {
            return !flash_is_fp8(spec) && (!inner || inner(spec));
        };
    }
    return list;
}

}  // namespace attncheck::properties
