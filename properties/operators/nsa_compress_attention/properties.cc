// The properties of compress attention, and the cases that the laws want. Relations of the lists are
// in list_relations.cc.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {
namespace {

using Int = std::int64_t;

void make_lattice(Spec& spec, Random& random) {
    spec.set("logits", static_cast<std::int64_t>(random.pick(
                           {LogitKind::equal, LogitKind::dominant, LogitKind::single})));
    spec.set("scale", static_cast<std::int64_t>(
                          random.pick({ScaleKind::one, ScaleKind::eighth, ScaleKind::one})));
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 40);
    if (random.chance(40)) spec.set("mask", 0), spec.set("hides", 0);
    if (spec.numbers[kLogits] == static_cast<std::int64_t>(LogitKind::single)) return;
    // A power of two of keys or of blocks, where count allows it.
    const std::int64_t keys = keys_per_select(spec);
    for (auto& length : spec.lists[1]) {
        if (length == 0) continue;
        std::int64_t power = 1;
        while (power < length) power *= 2;
        const bool equal = spec.numbers[kLogits] == static_cast<std::int64_t>(LogitKind::equal);
        length = std::min<std::int64_t>(equal ? power : (power + keys - 1) / keys * keys, 512);
    }
    const std::int64_t fits = 512 / keys;
    spec.numbers[kCount] = std::min(spec.numbers[kCount], fits);
}

/// One case in twenty has thousands of keys: byte offsets of a head that leave 16 bits, more blocks
/// than a sort has room for, the longest sequence there may be.
void now_and_then_long(Spec& spec, Random& random) {
    if (!random.chance(5)) return;
    spec.set("kv_heads", 1);
    spec.set("group", random.pick({1, 2, 4, 4, 8}));
    spec.set("dim", 8);
    spec.set("value_dim", 8);
    const std::int64_t keys = keys_per_select(spec);
    const std::int64_t length = random.pick<std::int64_t>({14000, 4096 * keys + 1, 8200, 13999});
    spec.lists = {{random.between(1, 2)}, {std::min<std::int64_t>(length, 14000)}};
    if (random.chance(60)) spec.set("topk_mask", 0), spec.set("forces", 0);
    if (random.chance(60)) spec.set("mask", 0), spec.set("hides", 0);
    if (spec.recipe == Recipe::specials) spec.recipe = Recipe::normal;
}

/// In most cases with data that tell blocks apart: an earlier call of other windows may change nothing but the lists.
void with_another_sequence(Spec& spec, Random& random) {
    if (random.chance(60)) {
        spec.recipe = Recipe::normal;
        spec.numbers[kLogits] = spec.numbers[kTopkMask] = spec.numbers[kForces] = 0;
        spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    }
    if (spec.lists[0].size() > 1) return;
    const Int keys = keys_per_select(spec);
    spec.lists[0].push_back(random.between(1, 4));
    spec.lists[1].push_back(spec.numbers[kCount] * keys + random.between(0, keys));
}

/// The lists have no rounding error; the first tier judges them.
void make_tier_case_of_blocks(Spec& spec, Random& random) {
    make_tier_case(spec, random, 1, std::max<Int>(1, keys_per_select(spec)) * spec.numbers[kCount],
                   1'500'000 / (spec.numbers[kDim] + spec.numbers[kValueDim] + 16));
    if (random.chance(kLongTierCases))
        make_long_tier_case(spec, random,
                            {.longest = 8192,
                             .least = std::max<Int>(1, keys_per_select(spec)) *
                                      spec.numbers[kCount]});
}

/// Every query head twice in its group: the same outputs twice, the same lists.
/// Why     all scores double.
/// Domain  2 G <= 64.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x15 x20 x23.
/// Shrinks to one query, group 1.
Verdict group_doubled(const Spec& spec, PropertyContext& context) {
    const AttentionOperator& of = attention_operator();
    const AttentionProblem problem = of.problem(spec);
    std::vector<std::int64_t> query_source,
        kv_source(static_cast<std::size_t>(problem.shape.kv_heads));
    for (std::int64_t n = 0; n < problem.shape.query_heads; ++n)
        query_source.insert(query_source.end(), 2, n);
    std::iota(kv_source.begin(), kv_source.end(), std::int64_t{0});
    return verdict_on_moved_heads(of, problem, context, query_source, kv_source,
                                  "every query head twice");
}

/// Keys behind the last sequence, or in blocks that are hidden from all rows.
void with_unseen_keys(Spec& spec, Random& random) {
    if (random.chance(50)) {
        spec.numbers[kBeyondCmp] = random.between(1, 3);
        return;
    }
    if (spec.numbers[kMask] == 0) spec.numbers[kMask] = random.between(1, 2);
    spec.numbers[kHides] = static_cast<std::int64_t>(Hides::striped);
}

void with_mask(Spec& spec, Random& random) {
    if (spec.numbers[kMask] == 0) {
        spec.numbers[kMask] = random.between(1, 2);
        spec.numbers[kHides] = random.pick<std::int64_t>({0, 2, 2, 4});
    }
}

void with_several_heads(Spec& spec, Random& random) {
    if (spec.numbers[kKvHeads] == 1) spec.numbers[kKvHeads] = random.between(2, 3);
}

void with_group(Spec& spec, Random& random) {
    if (spec.numbers[kGroup] == 1) spec.numbers[kGroup] = random.pick<Int>({2, 4});
}

void with_room_in_group(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    spec.numbers[kGroup] = std::min<Int>(spec.numbers[kGroup], 32);
}

void with_sequences(Spec& spec, Random& random) {
    const Int keys = keys_per_select(spec);
    spec.lists[0].push_back(random.between(1, 6));
    spec.lists[1].push_back(spec.numbers[kCount] * keys + random.between(0, 2 * keys));
}

const AttentionCases kCases = {
    .unseen_keys = with_unseen_keys,
    .masked = with_mask,
    .is_masked = [](const Spec& spec) { return spec.numbers[kMask] != 0; },
    .less_data = with_fewer_queries,
    .several_sequences = with_sequences,
    .several_heads = with_several_heads,
    .group = with_group,
    .several_runs = with_fewer_queries,
    .causality = "hidden_keys"};

/// The lists of the (query row, key head) that the chosen rows belong to.
Verdict judge_lists(const AttentionProblem& problem, const Call& call, const CallResult& result,
                    const RowSample& rows, const PropertyContext& context) {
    const ref::CompressAttentionShape& s = extras_of<Parts>(problem).shape;
    Scores all(problem, context.rounding);
    ref::ImportanceScores& scores = all.of_blocks;
    const auto lists = lists_of(result.outputs[tensor_index(call, "topk_indices")]);
    std::set<Int> chosen;
    for (const Int number : rows.numbers) {
        const Int t = number / s.query_heads, n = number % s.query_heads;
        chosen.insert(t * s.kv_heads + n / s.group());
    }
    Verdict verdict;
    for (const Int number : chosen) {
        const Int t = number / s.kv_heads;
        const std::span<const Int> list{lists.data() + number * s.select_count,
                                        static_cast<std::size_t>(s.select_count)};
        const bool beyond = scores.query(t).sequence < 0;
        ref::ListJudgement one;
        if (!beyond) one = ref::judge_list(scores(t, number % s.kv_heads), list);
        verdict.worst_ratio = std::max(verdict.worst_ratio, one.worst_ratio);
        const bool wrong = beyond
                               ? std::any_of(list.begin(), list.end(), [](Int i) { return i != 0; })
                               : one.fault.has_value();
        if (!wrong) continue;
        const Int position = one.fault ? one.fault->position : 0;
        verdict.kind = Verdict::Kind::failed;
        verdict.tier = Tier::bound;
        verdict.failure = "topk_indices is wrong";
        verdict.message = fmt::format(
            "topk_indices: {}  {}",
            problem.place("topk_indices",
                          static_cast<std::size_t>(number * s.select_count + position)),
            one.fault ? one.fault->reason : "a row behind the last sequence holds zeros");
        return verdict;
    }
    verdict.message = fmt::format("  topk_indices: the {} lists of these rows", chosen.size());
    return verdict;
}

/// Statistics and output of the chosen heads, and the lists of blocks of their key heads.
Verdict check_full_size(const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = problem_of(parts_of(spec));
    double pairs = 0;
    for (std::size_t b = 0; b < problem.query_lengths.size(); ++b)
        pairs += static_cast<double>(problem.query_lengths[b] * problem.kv_lengths[b] *
                                     problem.shape.query_heads);
    FullSizeAttention of = full_size(attention_operator(), spec, std::move(problem), pairs);
    of.more = [&context](const AttentionProblem& made, const Call& call, const CallResult& result,
                         const RowSample& rows) {
        return judge_lists(made, call, result, rows, context);
    };
    return judge_full_size(std::move(of), spec, is_tier_data(spec), context);
}

}  // namespace

/// The compressed keys of a long sequence, hidden as in the paper where the mask has room, and
/// several sequences. First exact sums over a power of two of keys.
std::vector<Spec> large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kRoomForMasks = 16'384;
    const Int odd = Random(seed).between(1, 15);
    const auto with = [&](std::vector<Int> query, std::vector<Int> cmp, std::uint64_t own_seed) {
        Spec spec = large_case(schema, std::move(query), std::move(cmp), own_seed);
        for (const auto& [field, value] : {std::pair<Field, Int>{kKvHeads, 1},
                                           {kGroup, 4},
                                           {kBlock, 32},
                                           {kStride, 16},
                                           {kSelect, 64},
                                           {kCount, 4}})
            spec.numbers[field] = value;
        return spec;
    };
    Spec one = with({length - odd}, {std::max<Int>((length - odd) / 16 - 1, 16)}, seed);
    if (length <= kRoomForMasks) {
        one.numbers[kMask] = static_cast<Int>(MaskKind::boolean);
        one.numbers[kHides] = static_cast<Int>(Hides::causal);
        one.numbers[kSparse] = 1;
    }
    Spec several =
        with({length / 4 + odd, 1, length / 8},
             {std::max<Int>(length / 64, 16), 16, std::max<Int>(length / 128 + odd, 16)}, seed + 1);
    several.numbers[kDtype] = 0;
    several.numbers[kKvHeads] = 2;
    several.numbers[kGroup] = 2;
    several.numbers[kDim] = 72;
    several.numbers[kValueDim] = 40;
    Spec exact = with({std::min<Int>(length, 2048) - odd}, {std::max<Int>(exact_keys_of(length) / 16, 16)}, seed + 2);
    with_exact_sums(exact);
    return {exact, one, several};
}

/// Agreement: any order of accumulation, any tiling and either way of normalising stays within the
/// bound of the attention part, and its lists are in an order that the error of the scores leaves
/// open (ref/operators/nsa_compress_attention_scores.h).
/// Domain  every legal case, every data recipe, every layout.
/// Kills   the mutants NCA-*.
/// Shrinks to one query, one key, one head, and the few elements that matter.
std::vector<Property> properties_of_attention() {
    const AttentionOperator& of = attention_operator();
    std::vector<Property> list = attention_checks(
        of,
        {.adapt_agreement = now_and_then_long,
         .adapt_history = with_another_sequence,
         .earlier = {other_value("block", {16, 32, 64, 96, 128}), other_value("stride", {16, 32, 48}),
                     other_value("select", {16, 32, 64, 128}), other_value("sparse", {0, 1}),
                     other_value("mask", {0, 1}), other_value("topk_mask", {0, 1})},
         .lattice = make_lattice,
         .tier_case = make_tier_case_of_blocks});
    add_validation(list);
    add_attention_laws(list, of, false, kCases);
    list.push_back({"group_doubled", "every query head twice: the same lists", group_doubled,
                    with_room_in_group, [](const Spec& spec) {
                        return moderate(spec) && 2 * spec.numbers[kGroup] <= 64;
                    }});
    add_list_relations(list);
    list.push_back(full_size_property("rows", check_full_size));
    return list;
}

}  // namespace attncheck::properties::compress_attention
