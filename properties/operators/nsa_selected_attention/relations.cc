// The relations of selected attention in both directions: the laws of all attention operators with
// the cases that they want, and those of the lists (list_relations.cc).
#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

void with_spare_blocks(Spec& spec, Random& random) {
    for (auto& kv : spec.lists[1])
        if (kv > 0) kv += spec.numbers[kSelBlock] * random.between(0, 2);
}

void with_mask(Spec& spec, Random& random) {
    if (spec.numbers[kSelMask] != 0) return;
    spec.numbers[kSelMask] = random.between(1, 2);
}

void with_several_heads(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kSelKvHeads] > 1) return;
    spec.numbers[kSelKvHeads] = random.between(2, 3);
    spec.numbers[kSelGroup] = (spec.numbers[kSelGroup] + 1) / 2;
}

void with_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kSelGroup] == 1) spec.numbers[kSelGroup] = random.between(2, 3);
}

void with_sequences(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.lists[0].size() > 1) return;
    spec.lists[0].push_back(random.between(1, 20));
    spec.lists[1].push_back(spec.numbers[kSelBlock] *
                            (spec.numbers[kSelCount] + random.between(0, 2)));
}

const AttentionCases kCases = {
    .unseen_keys = with_spare_blocks,
    .masked = with_mask,
    .is_masked = [](const Spec& spec) { return spec.numbers[kSelMask] != 0; },
    .several_sequences = with_sequences,
    .several_heads = with_several_heads,
    .group = with_group,
    .hidden = "unselected"};

}  // namespace

void add_selected_shared_relations(std::vector<Property>& list, bool gradient) {
    add_selected_list_relations(list);
    add_attention_laws(list, selected_attention_operator(), gradient, kCases);
}

void add_selected_forward_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list, false);
}

void add_selected_gradient_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list, true);
}

}  // namespace attncheck::properties
