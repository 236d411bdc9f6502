// Flash attention and its gradient against the reference: agreement, exact data, and what a call
// may do to memory and to other calls.
#include <algorithm>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

void make_lattice(Spec& spec, Random& random) {
    spec.recipe = Recipe::ints;
    spec.set("logits", random.between(1, 2));
    spec.set("scale", random.between(0, 2));
    spec.set("pse", 0), spec.set("pse_type", 1), spec.set("start", 0);
    if (spec.number("drop") != 0) spec.set("keep", random.between(0, 1));
    if (spec.schema->number("stats") >= 0) spec.set("stats", 0), spec.set("out", 0);
    if (random.chance(60)) {  // a power of two of keys, everything visible or causal from its end
        const std::int64_t keys = random.pick<std::int64_t>({1, 2, 4, 8, 16, 32, 64, 128});
        for (auto& length : spec.lists[1])
            if (length > 0) length = keys;
    }
}

bool is_lattice_data(const Spec& spec) {
    const bool plain =
        spec.schema->number("stats") < 0 || (spec.number("stats") == 0 && spec.number("out") == 0);
    return plain && (spec.recipe == Recipe::ints || spec.recipe == Recipe::zeros);
}

/// Other attributes at the same shapes: what a plan cached by shapes would miss.
Spec earlier_case(const Spec& spec) {
    Spec before = spec;
    before.seed = spec.seed + 1;
    before.overrides.clear();
    if (before.recipe == Recipe::zeros) before.recipe = Recipe::normal;
    before.set("scale", spec.number("scale") == 2 ? 0 : 2);
    const auto legal = [&](Spec candidate) {
        if (!illegal(candidate)) before = std::move(candidate);
    };
    Spec other = before;
    std::reverse(other.lists[0].begin(), other.lists[0].end());
    std::reverse(other.lists[1].begin(), other.lists[1].end());
    legal(other);
    other = before;
    if (other.number("mask") != 0 && other.number("sparse") >= 2 && other.number("sparse") <= 4) {
        other.set("sparse", other.number("sparse") == 2 ? 3 : 2);
        legal(other);
    }
    other = before;
    if (other.number("drop") != 0) {
        other.set("keep", other.number("keep") == 1 ? 2 : 1);
        legal(other);
    }
    return before;
}

void tame(Spec& spec) {
    if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
}

}  // namespace

/// Agreement: any order of accumulation, any tiling and either way of normalising stays within the
/// bound of verification.md 4.3 (forward) and 4.5 (gradient).
/// Domain  every legal case, every feature, data recipe and layout.
/// Shrinks to one batch, one query, one key, one channel, and the few elements that matter.
void add_flash_agreement(std::vector<Property>& list, bool) {
    CallProperties of;
    of.problem = [](const Spec& spec) { return attention_case(flash_attention_operator(), spec, ref::Grant::rounding); };
    of.tame = tame;
    of.adapt_history = [](Spec&, Random&) {};
    of.earlier = earlier_case;
    of.earlier_words = "other data, scale, sparse mode, keep probability or order of sequences";
    const std::size_t first = list.size();
    add_call_properties(list, of);
    list[first].case_factor = 4;  // many features
    add_exact_lattice(list, flash_attention_operator(), make_lattice, is_lattice_data);
}

}  // namespace attncheck::properties
