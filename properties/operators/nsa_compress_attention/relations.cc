// The relations of compress attention: the laws of all attention operators with the cases that they
// want, and doubled query heads. Those of the lists are in list_relations.cc.
#include <algorithm>
#include <numeric>

#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {
namespace {

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
    with_less_data(spec, random);
    if (spec.numbers[kKvHeads] == 1) spec.numbers[kKvHeads] = random.between(2, 3);
}

void with_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kGroup] == 1) spec.numbers[kGroup] = random.pick<std::int64_t>({2, 4});
}

void with_room_in_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    spec.numbers[kGroup] = std::min<std::int64_t>(spec.numbers[kGroup], 32);
}

void with_sequences(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.lists[0].size() > 1) return;
    const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride];
    spec.lists[0].push_back(random.between(1, 6));
    spec.lists[1].push_back(spec.numbers[kCount] * keys + random.between(0, 2 * keys));
}

const AttentionCases kCases = {
    .unseen_keys = with_unseen_keys,
    .masked = with_mask,
    .is_masked = [](const Spec& spec) { return spec.numbers[kMask] != 0; },
    .several_sequences = with_sequences,
    .several_heads = with_several_heads,
    .group = with_group,
    .several_runs = with_less_data,
    .causality = "hidden_keys"};

}  // namespace

void add_relations(std::vector<Property>& list) {
    add_attention_laws(list, attention_operator(), false, kCases);
    list.push_back({"group_doubled", "every query head twice: the same lists", group_doubled,
                    with_room_in_group, [](const Spec& spec) {
                        return moderate(spec) && 2 * spec.numbers[kGroup] <= 64;
                    }});
}

}  // namespace attncheck::properties::compress_attention
