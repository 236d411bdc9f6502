// Selected attention and its gradient against the reference: agreement, exact data, and what a call
// may do to memory and to other calls.
#include <algorithm>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

void make_lattice(Spec& spec, Random& random) {
    spec.recipe = Recipe::ints;
    spec.set("logits",
             static_cast<std::int64_t>(random.chance(50) ? LogitKind::equal : LogitKind::dominant));
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
    if (spec.schema->number("stats") >= 0) spec.set("stats", 0), spec.set("out", 0);
}

bool is_lattice_data(const Spec& spec) {
    const bool plain =
        spec.schema->number("stats") < 0 || (spec.number("stats") == 0 && spec.number("out") == 0);
    return plain && spec.recipe <= Recipe::ints && spec.recipe != Recipe::ones;
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
    if (spec.number("mask") != 0 && spec.number("mask_shape") == 0)
        before.set("sparse", 2 - spec.number("sparse"));
    return before;
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

void tame(Spec& spec) {
    if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
}

}  // namespace

/// Agreement: any order of accumulation, any tiling and either way of normalising stays within the
/// bound of verification.md 4.3 (forward) and 4.5 (gradient).
/// Domain  every legal case, every data recipe, every layout.
/// Kills   the mutants NSF-*, NSG-* and ALL-02 03 05.
/// Shrinks to one query, one block of 16 keys, one head, and the few elements that matter.
void add_selected_agreement(std::vector<Property>& list, bool) {
    CallProperties of;
    of.problem = [](const Spec& spec) { return attention_case(selected_attention_operator(), spec, ref::Grant::rounding); };
    of.adapt_agreement = now_and_then_far;
    of.tame = tame;
    of.adapt_history = [](Spec& spec, Random& random) {
        if (spec.lists[0].size() < 2) {
            spec.lists[0].push_back(random.between(1, 4));
            spec.lists[1].push_back(spec.number("block") * spec.number("count"));
        }
    };
    of.earlier = earlier_case;
    of.earlier_words = "the sequences in the opposite order, other data, scale and sparse mode";
    add_call_properties(list, of);
    add_exact_lattice(list, selected_attention_operator(), make_lattice, is_lattice_data);
}

}  // namespace attncheck::properties
