// Compress attention against the reference: agreement, exact data, and what a call may do to memory
// and to other calls.
#include <algorithm>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {
namespace {

void make_lattice(Spec& spec, Random& random) {
    spec.recipe = Recipe::ints;
    spec.set("logits", static_cast<std::int64_t>(random.pick(
                           {LogitKind::equal, LogitKind::dominant, LogitKind::single})));
    spec.set("scale", static_cast<std::int64_t>(
                          random.pick({ScaleKind::one, ScaleKind::eighth, ScaleKind::one})));
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 40);
    if (random.chance(40)) spec.set("mask", 0), spec.set("hides", 0);
    if (spec.numbers[kLogits] == static_cast<std::int64_t>(LogitKind::single)) return;
    // A power of two of keys or of blocks, where count allows it.
    const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride];
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

/// Other attributes at the same shapes: what a plan cached by shapes would miss.
Spec earlier_case(const Spec& spec) {
    Spec before = spec;
    std::reverse(before.lists[0].begin(), before.lists[0].end());
    std::reverse(before.lists[1].begin(), before.lists[1].end());
    before.seed = spec.seed + 1;
    before.overrides.clear();
    if (before.recipe == Recipe::zeros) before.recipe = Recipe::normal;
    before.set("scale",
               static_cast<std::int64_t>(spec.number("scale") == static_cast<int>(ScaleKind::eighth)
                                             ? ScaleKind::one
                                             : ScaleKind::eighth));
    return before;
}

/// One case in twenty has thousands of keys: byte offsets of a head that leave 16 bits, more blocks
/// than a sort has room for, the longest sequence there may be.
void now_and_then_long(Spec& spec, Random& random) {
    if (!random.chance(5)) return;
    spec.set("kv_heads", 1);
    spec.set("group", random.pick({1, 2, 4, 4, 8}));
    spec.set("dim", 8);
    spec.set("value_dim", 8);
    const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride];
    const std::int64_t length = random.pick<std::int64_t>({14000, 4096 * keys + 1, 8200, 13999});
    spec.lists = {{random.between(1, 2)}, {std::min<std::int64_t>(length, 14000)}};
    if (random.chance(60)) spec.set("topk_mask", 0), spec.set("forces", 0);
    if (random.chance(60)) spec.set("mask", 0), spec.set("hides", 0);
    if (spec.recipe == Recipe::specials) spec.recipe = Recipe::normal;
}

}  // namespace

/// Agreement: any order of accumulation, any tiling and either way of normalising stays within the
/// bound of the attention part, and its lists are in an order that the error of the scores leaves
/// open (ref/operators/nsa_compress_attention_scores.h).
/// Domain  every legal case, every data recipe, every layout.
/// Kills   the mutants NCA-*.
/// Shrinks to one query, one key, one head, and the few elements that matter.
void add_agreement(std::vector<Property>& list) {
    CallProperties of;
    of.problem = [](const Spec& spec) { return attention_case(attention_operator(), spec, ref::Grant::rounding); };
    of.adapt_agreement = now_and_then_long;
    of.adapt_history = [](Spec& spec, Random& random) {
        if (spec.lists[0].size() < 2) {
            const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride];
            spec.lists[0].push_back(random.between(1, 4));
            spec.lists[1].push_back(spec.numbers[kCount] * keys + random.between(0, keys));
        }
    };
    of.earlier = earlier_case;
    of.earlier_words = "the sequences in the opposite order, other data and scale";
    add_call_properties(list, of);
    add_exact_lattice(list, attention_operator(), make_lattice);
}

}  // namespace attncheck::properties::compress_attention
